// Portable matrix products with IQ3_XXS weights.
#include "sm80/packed/lattice.cuh"

PORTABLE_PACKED_FEW(iq3_xxs, sparrow_packed::IQ3XXS)
PORTABLE_PACKED_MANY(iq3_xxs, sparrow_packed::IQ3XXSNear)
