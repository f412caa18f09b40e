// Sparse attention over rows of 512 bf16 values: V4 entries gathered for the batch.
#include "sm90/sparse/kernel.cuh"

namespace {
using Registers = sparrow_sparse::Registers<216, 184, 96>;
using Rows = sparrow_sparse::CopiedRows<8, false, true>;
}  // namespace

extern "C" __global__ void __launch_bounds__(sparrow_sparse::kThreads,
    1) sparrow_sparse_flat(const __grid_constant__ MappedAttendArgs args) {
    sparrow_sparse::attend<Registers, Rows>(args.attend, &args.query_map);
}

// Dynamic shared memory to launch with.
extern "C" __device__ const u32 sparrow_sparse_flat_shared = sparrow_sparse::shared_bytes<Rows::Tiles>();
