// Paged index scores of 64 heads, for one query row per request.
#include "sm90/index/paged.cuh"

extern "C" __global__ void __launch_bounds__(sparrow_index::kThreads, 1)
    sparrow_index_paged_h64_n1(const __grid_constant__ IndexPagedArgs args) {
    sparrow_index::paged_scores<sparrow_index::Shape<64, 1>>(args);
}

// The dynamic shared memory of a launch, in bytes.
extern "C" __device__ const u32 sparrow_index_paged_h64_n1_shared = sparrow_index::shared_bytes<sparrow_index::Shape<64,
    1>>();
