// Paged index scores of 32 heads, for up to 4 query rows per request.
#include "sm90/index/paged.cuh"

extern "C" __global__ void __launch_bounds__(sparrow_index::kThreads, 1)
    sparrow_index_paged_h32_n4(const __grid_constant__ IndexPagedArgs args) {
    sparrow_index::paged_scores<sparrow_index::Shape<32, 4>>(args);
}

// The dynamic shared memory of a launch, in bytes.
extern "C" __device__ const u32 sparrow_index_paged_h32_n4_shared = sparrow_index::shared_bytes<sparrow_index::Shape<32,
    4>>();
