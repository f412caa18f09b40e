// Top-k with an optional index transform, k up to 2048, rows of up to 8192 scores, five teams of 128 threads and a copy
// warp, 1 block per SM.
#include "sm90/topk/short.cuh"

using Shape = sparrow_topk::ShortShape<8192, 128, 5, 6>;

extern "C" __global__ void __launch_bounds__(Shape::BlockThreads, 1)
    sparrow_topk_short(const __grid_constant__ TopKArgs args) {
    extern __shared__ __align__(128) u8 dynamic_shared[];
    sparrow_topk::ShortRows<Shape>(args, *reinterpret_cast<sparrow_topk::ShortStorage<Shape>*>(dynamic_shared)).run();
}

// Dynamic shared memory to launch with.
extern "C" __device__ const u32 sparrow_topk_short_shared = sizeof(sparrow_topk::ShortStorage<Shape>);
static_assert(sizeof(sparrow_topk::ShortStorage<Shape>) <= 232448, "more shared memory than a Hopper block can have");
