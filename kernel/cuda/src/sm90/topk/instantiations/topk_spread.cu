// Top-k with an optional index transform, for k up to 2048 and rows of up to 16381 scores per block of a cluster. A
// block has 512 threads.
#include "sm90/topk/spread.cuh"

extern "C" __global__ void __launch_bounds__(512, 2) sparrow_topk_spread(const __grid_constant__ TopKArgs args) {
    extern __shared__ __align__(128) u8 dynamic_shared[];
    sparrow_topk::Spread(args, *reinterpret_cast<sparrow_topk::SpreadStorage*>(dynamic_shared)).run();
}

// The dynamic shared memory of a launch, in bytes. Two blocks fit on an SM, each with one reserved kilobyte.
extern "C" __device__ const u32 sparrow_topk_spread_shared = sizeof(sparrow_topk::SpreadStorage);
static_assert(2 * (sizeof(sparrow_topk::SpreadStorage) + 1024) <= 233472, "two blocks per SM");
