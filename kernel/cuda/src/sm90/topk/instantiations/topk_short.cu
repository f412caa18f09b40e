// Top-k with an optional index transform, for k up to 2048 and rows of up to 8192 scores. A block has five teams of
// 128 threads and a copy warp; one block runs per SM.
#include "sm90/topk/short.cuh"

using Shape = sparrow_topk::ShortShape<8192, 128, 5, 6>;

extern "C" __global__ void __launch_bounds__(Shape::BlockThreads, 1)
    sparrow_topk_short(const __grid_constant__ TopKArgs args) {
    extern __shared__ __align__(128) u8 dynamic_shared[];
    sparrow_topk::ShortRows<Shape>(args, *reinterpret_cast<sparrow_topk::ShortStorage<Shape>*>(dynamic_shared)).run();
}

// The dynamic shared memory of a launch, in bytes.
extern "C" __device__ const u32 sparrow_topk_short_shared = sizeof(sparrow_topk::ShortStorage<Shape>);
static_assert(sizeof(sparrow_topk::ShortStorage<Shape>) <= 232448, "more shared memory than a Hopper block can have");
