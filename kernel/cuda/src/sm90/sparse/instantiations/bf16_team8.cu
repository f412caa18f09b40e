// Sparse attention over rows of 576 bf16 values: 8 thread blocks for each unit.
#include "sm90/sparse/team.cuh"

extern "C" __global__ void __cluster_dims__(8) __launch_bounds__(sparrow_sparse::kTeamThreads, 1)
    sparrow_sparse_bf16_team8(const __grid_constant__ SparseAttendArgs args) {
    sparrow_sparse::attend_copied_team<9>(args);
}

// Dynamic shared memory to launch with.
extern "C" __device__ const u32 sparrow_sparse_bf16_team8_shared = sparrow_sparse::team_shared_bytes<8>();
