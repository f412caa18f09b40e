// Portable matrix products with IQ2_XXS weights.
#include "sm80/packed/lattice.cuh"

PORTABLE_PACKED_FEW(iq2_xxs, sparrow_packed::IQ2XXS)
PORTABLE_PACKED_MANY(iq2_xxs, sparrow_packed::IQ2XXSNear)
