// Sparse attention over rows of 512 bf16 values: V4 entries that were gathered for the batch.
#include "sm90/sparse/held.cuh"

extern "C" __global__ void __launch_bounds__(sparrow_sparse::kHeldThreads,
    1) sparrow_sparse_flat(const __grid_constant__ MappedAttendArgs args) {
    sparrow_sparse::attend_held<8>(args);
}

// The dynamic shared memory of a launch, in bytes.
extern "C" __device__ const u32 sparrow_sparse_flat_shared =
    sparrow_sparse::shared_bytes<sparrow_sparse::HeldStorage<8>>();
