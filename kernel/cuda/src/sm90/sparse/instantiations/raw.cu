// Sparse attention over 576-byte FP8 rows.
#include "sm90/sparse/kernel.cuh"

namespace {
using Roles = sparrow_sparse::Roles<1, 216, 168, 120>;
using Rows = sparrow_sparse::ConvertedRows<sparrow_sparse::RawFormat, Roles>;
}  // namespace

extern "C" __global__ void __launch_bounds__(Roles::Threads, 1) sparrow_sparse_raw(const __grid_constant__ SparseAttendArgs args) {
    sparrow_sparse::attend<9, Roles, Rows>(args);
}

// Dynamic shared memory to launch with.
extern "C" __device__ const u32 sparrow_sparse_raw_shared = sparrow_sparse::shared_bytes<9>();
