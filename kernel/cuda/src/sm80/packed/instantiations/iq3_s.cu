// Portable matrix products with IQ3_S weights.
#include "sm80/packed/lattice.cuh"

PORTABLE_PACKED_FEW(iq3_s, sparrow_packed::IQ3S)
PORTABLE_PACKED_MANY(iq3_s, sparrow_packed::IQ3SNear)
