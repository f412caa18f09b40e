// Sparse attention over 528-byte FP8 rows, which have no rotary part.
#include "sm90/sparse/kernel.cuh"
#include "sm90/sparse/nope.cuh"

namespace {
using Registers = sparrow_sparse::Registers<208, 160, 136>;
using Rows = sparrow_sparse::ConvertedRows<sparrow_sparse::NopeFormat>;
}  // namespace

extern "C" __global__ void __launch_bounds__(sparrow_sparse::kThreads,
    1) sparrow_sparse_nope(const __grid_constant__ SparseAttendArgs args) {
    sparrow_sparse::attend<Registers, Rows>(args);
}

// The dynamic shared memory of a launch, in bytes.
extern "C" __device__ const u32 sparrow_sparse_nope_shared =
    sparrow_sparse::shared_bytes<sparrow_sparse::Storage<Rows::Tiles>>();
