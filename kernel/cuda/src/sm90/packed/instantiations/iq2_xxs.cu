// Matrix products with IQ2_XXS weights.
#include "smxx/packed/decode_lattice.cuh"
#include "sm90/packed/few_matrix.cuh"

PACKED_KERNELS_FINE(iq2_xxs, sparrow_packed::IQ2XXS)
PACKED_FEW_EXPERTS(iq2_xxs, 8, sparrow_packed::IQ2XXS)
PACKED_FEW_MATRIX(iq2_xxs, sparrow_packed::IQ2XXS)
