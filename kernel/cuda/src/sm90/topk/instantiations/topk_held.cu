// Top-k with an optional index transform, k up to 2048, rows of up to 8192 scores, blocks of 256 threads, 4 per SM.
#include "sm90/topk/held.cuh"

using Shape = sparrow_topk::HeldShape<8>;

extern "C" __global__ void __launch_bounds__(256, 4) sparrow_topk_held(const __grid_constant__ TopKArgs args) {
    extern __shared__ __align__(128) u8 dynamic_shared[];
    sparrow_topk::Held<Shape>(args, *reinterpret_cast<sparrow_topk::HeldStorage<Shape>*>(dynamic_shared)).run();
}

// Dynamic shared memory to launch with: four blocks on an SM, each with a kilobyte of its own, fit.
extern "C" __device__ const u32 sparrow_topk_held_shared = sizeof(sparrow_topk::HeldStorage<Shape>);
static_assert(4 * (sizeof(sparrow_topk::HeldStorage<Shape>) + 1024) <= 233472, "four blocks per SM");
