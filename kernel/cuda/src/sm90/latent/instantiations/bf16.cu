// Attention over every key of paged sequences with rows of 576 bf16 values. It is the sparse-attention kernel with
// page tables instead of lists.
#define SPARROW_EVERY_KEY
#include "sm90/sparse/held.cuh"

extern "C" __global__ void __launch_bounds__(sparrow_sparse::kHeldThreads,
    1) sparrow_latent_bf16(const __grid_constant__ MappedAttendArgs args) {
    sparrow_sparse::attend_held<9>(args);
}

// The dynamic shared memory of a launch, in bytes.
extern "C" __device__ const u32 sparrow_latent_bf16_shared =
    sparrow_sparse::shared_bytes<sparrow_sparse::HeldStorage<9>>();
