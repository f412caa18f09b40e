// Sparse attention over gathered V4 rows of 512 bf16 values: 8 thread blocks for each unit.
#include "sm90/sparse/team.cuh"

extern "C" __global__ void __cluster_dims__(8) __launch_bounds__(sparrow_sparse::kTeamThreads, 1)
    sparrow_sparse_flat_team8(const __grid_constant__ SparseAttendArgs args) {
    sparrow_sparse::attend_copied_team<8>(args);
}

// Dynamic shared memory to launch with.
extern "C" __device__ const u32 sparrow_sparse_flat_team8_shared = sparrow_sparse::team_shared_bytes<8>();
