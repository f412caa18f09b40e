// Sparse attention over rows of 576 bf16 values: the bf16 pool, or rows that were gathered for the batch.
#include "sm90/sparse/held.cuh"

extern "C" __global__ void __launch_bounds__(sparrow_sparse::kHeldThreads,
    1) sparrow_sparse_bf16(const __grid_constant__ MappedAttendArgs args) {
    sparrow_sparse::attend_held<9>(args);
}

// The dynamic shared memory of a launch, in bytes.
extern "C" __device__ const u32 sparrow_sparse_bf16_shared =
    sparrow_sparse::shared_bytes<sparrow_sparse::HeldStorage<9>>();
