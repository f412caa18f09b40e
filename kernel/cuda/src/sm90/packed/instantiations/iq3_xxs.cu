// Matrix products with IQ3_XXS weights.
#include "smxx/packed/decode_lattice.cuh"
#include "sm90/packed/few_matrix.cuh"

PACKED_KERNELS_FINE(iq3_xxs, sparrow_packed::IQ3XXS)
PACKED_FEW_EXPERTS(iq3_xxs, 8, sparrow_packed::IQ3XXS)
PACKED_FEW_MATRIX(iq3_xxs, sparrow_packed::IQ3XXS)
