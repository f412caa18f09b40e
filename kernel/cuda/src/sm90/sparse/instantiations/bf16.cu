// Sparse attention over rows of 576 bf16 values: the bf16 pool, or rows gathered for the batch.
#include "sm90/sparse/kernel.cuh"

namespace {
using Registers = sparrow_sparse::Registers<216, 184, 96>;
using Rows = sparrow_sparse::CopiedRows<9, false>;
}  // namespace

extern "C" __global__ void __launch_bounds__(sparrow_sparse::kThreads,
    1) sparrow_sparse_bf16(const __grid_constant__ SparseAttendArgs args) {
    sparrow_sparse::attend<Registers, Rows>(args);
}

// Dynamic shared memory to launch with.
extern "C" __device__ const u32 sparrow_sparse_bf16_shared = sparrow_sparse::shared_bytes<Rows::Tiles>();
