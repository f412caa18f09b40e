// Matrix products with IQ2_XXS weights.
#include "smxx/packed/decode_lattice.cuh"
#include "sm90/packed/product.cuh"

PACKED_KERNELS_FINE(iq2_xxs, sparrow_packed::IQ2XXS)
PACKED_DUO(iq2_xxs, sparrow_packed::IQ2XXS)
