// Top-k with an optional index transform, k up to 2048, rows of up to 49149 scores held in shared memory, blocks of 512 threads and a copy warp, 1 per SM.
#include "sm90/topk/resident.cuh"

extern "C" __global__ void __launch_bounds__(544, 1) sparrow_topk_resident(const __grid_constant__ TopKArgs args) {
    extern __shared__ __align__(128) u8 dynamic_shared[];
    sparrow_topk::Resident(args, *reinterpret_cast<sparrow_topk::ResidentStorage*>(dynamic_shared)).run();
}

// Dynamic shared memory to launch with.
extern "C" __device__ const u32 sparrow_topk_resident_shared = sizeof(sparrow_topk::ResidentStorage);
