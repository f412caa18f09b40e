// Top-k with an optional index transform, for k up to 2048 and rows of up to 196605 scores. A block has 256 threads
// and a copy warp; two blocks run per SM.
#include "sm90/topk/swept.cuh"

using Shape = sparrow_topk::SweptShape<196608, 4096, 6>;

extern "C" __global__ void __launch_bounds__(288, 2) sparrow_topk_swept_long(const __grid_constant__ TopKArgs args) {
    extern __shared__ __align__(128) u8 dynamic_shared[];
    sparrow_topk::Swept<Shape>(args, *reinterpret_cast<sparrow_topk::SweptStorage<Shape>*>(dynamic_shared)).run();
}

// The dynamic shared memory of a launch, in bytes. Two blocks fit on an SM, each with one reserved kilobyte.
extern "C" __device__ const u32 sparrow_topk_swept_long_shared = sizeof(sparrow_topk::SweptStorage<Shape>);
static_assert(2 * (sizeof(sparrow_topk::SweptStorage<Shape>) + 1024) <= 233472, "two blocks per SM");
