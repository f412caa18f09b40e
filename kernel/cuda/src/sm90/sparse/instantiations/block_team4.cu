// Sparse attention over 656-byte FP8 rows, few rows: 4 thread blocks for each unit.
#include "sm90/sparse/team.cuh"

extern "C" __global__ void __cluster_dims__(4) __launch_bounds__(sparrow_sparse::kTeamThreads, 1)
    sparrow_sparse_block_team4(const __grid_constant__ SparseAttendArgs args) {
    sparrow_sparse::attend_block_team<4>(args);
}

// Dynamic shared memory to launch with.
extern "C" __device__ const u32 sparrow_sparse_block_team4_shared = sparrow_sparse::team_shared_bytes<4>();
