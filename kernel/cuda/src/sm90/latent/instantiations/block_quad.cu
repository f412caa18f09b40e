// Attention over every key of paged sequences of 656-byte FP8 rows, few rows: four thread blocks of 16 heads each for
// a unit of 64.
#define SPARROW_EVERY_KEY
#include "sm90/latent/turned.cuh"

extern "C" __global__ void __launch_bounds__(sparrow_latent::kTurnedThreads,
    1) sparrow_latent_block_quad(const __grid_constant__ SparseAttendArgs args) {
    sparrow_latent::attend_turned<16>(args);
}

// Dynamic shared memory to launch with.
extern "C" __device__ const u32 sparrow_latent_block_quad_shared =
    sparrow_sparse::shared_bytes<sparrow_latent::TurnedStorage<16>>();
