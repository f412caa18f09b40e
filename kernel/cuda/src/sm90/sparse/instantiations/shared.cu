// Sparse attention over rows of DeepSeek-V4.1: a window of 528-byte rows, then entries of 288 bytes.
#include "sm90/sparse/kernel.cuh"
#include "sm90/sparse/shared.cuh"

namespace {
using Registers = sparrow_sparse::WideRegisters<208, 160, 72>;
using Rows = sparrow_sparse::SharedRows;
}  // namespace

extern "C" __global__ void __launch_bounds__(256 + Rows::kFetchThreads, 1)
    sparrow_sparse_shared(const __grid_constant__ SparseAttendArgs args) {
    sparrow_sparse::attend<Registers, Rows>(args);
}

// The dynamic shared memory of a launch, in bytes.
extern "C" __device__ const u32 sparrow_sparse_shared_shared =
    sparrow_sparse::shared_bytes<sparrow_sparse::SharedStorage>();
