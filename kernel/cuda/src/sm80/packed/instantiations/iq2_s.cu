// Portable matrix products with IQ2_S weights.
#include "sm80/packed/lattice.cuh"

PORTABLE_PACKED_FEW(iq2_s, sparrow_packed::IQ2SNear)
PORTABLE_PACKED_MANY(iq2_s, sparrow_packed::IQ2SNear)
