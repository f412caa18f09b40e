// Attention over every key of paged sequences with 656-byte FP8 rows, for few query rows: four thread blocks of 16
// heads each per 64 heads.
#define SPARROW_EVERY_KEY
#include "sm90/latent/turned.cuh"

extern "C" __global__ void __launch_bounds__(sparrow_latent::kTurnedThreads,
    1) sparrow_latent_block_quad(const __grid_constant__ SparseAttendArgs args) {
    sparrow_latent::attend_turned<16>(args);
}

// The dynamic shared memory of a launch, in bytes.
extern "C" __device__ const u32 sparrow_latent_block_quad_shared =
    sparrow_sparse::shared_bytes<sparrow_latent::TurnedStorage<16>>();
