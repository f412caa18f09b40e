// Sparse attention over rows of DeepSeek-V4.1, for few query rows: two thread blocks per unit.
#include "sm90/sparse/shared_duo.cuh"

extern "C" __global__ void __cluster_dims__(2) __launch_bounds__(sparrow_sparse::kDuoThreads, 1)
    sparrow_sparse_shared_duo(const __grid_constant__ SparseAttendArgs args) {
    sparrow_sparse::attend_shared_duo(args);
}

// The dynamic shared memory of a launch, in bytes.
extern "C" __device__ const u32 sparrow_sparse_shared_duo_shared =
    sparrow_sparse::shared_bytes<sparrow_sparse::SharedDuoStorage>();
