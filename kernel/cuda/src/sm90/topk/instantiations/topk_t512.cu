// Top-k with an optional index transform, for k up to 2048. A block has 512 threads; one block runs per SM.
#include "sm90/topk/kernel.cuh"

extern "C" __global__ void __launch_bounds__(512, 1) sparrow_topk_t512(const __grid_constant__ TopKArgs args) {
    sparrow_topk::topk_rows<sparrow_topk::Shape<512>>(args);
}

// The dynamic shared memory of a launch, in bytes.
extern "C" __device__ const u32 sparrow_topk_t512_shared = sizeof(sparrow_topk::Storage<sparrow_topk::Shape<512>>);
