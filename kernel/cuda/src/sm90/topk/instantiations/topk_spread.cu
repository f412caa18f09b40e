// Top-k with an optional index transform, k up to 2048, rows of up to 16381 scores per block of a cluster, blocks of
// 512 threads.
#include "sm90/topk/spread.cuh"

extern "C" __global__ void __launch_bounds__(512, 2) sparrow_topk_spread(const __grid_constant__ TopKArgs args) {
    extern __shared__ __align__(128) u8 dynamic_shared[];
    sparrow_topk::Spread(args, *reinterpret_cast<sparrow_topk::SpreadStorage*>(dynamic_shared)).run();
}

// Dynamic shared memory to launch with: two blocks on an SM, each with a kilobyte of its own, fit.
extern "C" __device__ const u32 sparrow_topk_spread_shared = sizeof(sparrow_topk::SpreadStorage);
static_assert(2 * (sizeof(sparrow_topk::SpreadStorage) + 1024) <= 233472, "two blocks per SM");
