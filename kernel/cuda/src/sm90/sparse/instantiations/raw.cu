// Sparse attention over 576-byte FP8 rows.
#include "sm90/sparse/kernel.cuh"

namespace {
using Registers = sparrow_sparse::Registers<208, 160, 136>;
using Rows = sparrow_sparse::ConvertedRows<sparrow_sparse::RawFormat>;
}  // namespace

extern "C" __global__ void __launch_bounds__(sparrow_sparse::kThreads,
    1) sparrow_sparse_raw(const __grid_constant__ SparseAttendArgs args) {
    sparrow_sparse::attend<Registers, Rows>(args);
}

// The dynamic shared memory of a launch, in bytes.
extern "C" __device__ const u32 sparrow_sparse_raw_shared =
    sparrow_sparse::shared_bytes<sparrow_sparse::Storage<Rows::Tiles>>();
