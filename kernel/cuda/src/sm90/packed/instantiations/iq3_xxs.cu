// Matrix products with IQ3_XXS weights.
#include "smxx/packed/decode_lattice.cuh"
#include "sm90/packed/product.cuh"

PACKED_KERNELS_FINE(iq3_xxs, sparrow_packed::IQ3XXS)
PACKED_DUO(iq3_xxs, sparrow_packed::IQ3XXS)
