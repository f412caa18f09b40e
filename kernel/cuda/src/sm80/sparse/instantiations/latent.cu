// Attention over every key of paged sequences, portable kernels.
#include "sm80/sparse/sparse.cuh"

PORTABLE_LATENT(portable_latent_bf16, portable::Bf16Row<576>)
PORTABLE_LATENT(portable_latent_block, portable::BlockRow)
PORTABLE_LATENT(portable_latent_raw, portable::RawRow)
