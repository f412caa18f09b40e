// Ragged index scores of 32 heads, for 8 query rows per item.
#include "sm90/index/ragged.cuh"

extern "C" __global__ void __launch_bounds__(sparrow_index::kThreads, 1)
    sparrow_index_ragged_h32(const __grid_constant__ IndexRaggedArgs args) {
    sparrow_index::ragged_scores<sparrow_index::Shape<32, 8>>(args);
}

// The dynamic shared memory of a launch, in bytes.
extern "C" __device__ const u32 sparrow_index_ragged_h32_shared = sparrow_index::shared_bytes<sparrow_index::Shape<32,
    8>>();
