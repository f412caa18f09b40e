// Portable matrix products with IQ4_NL and IQ4_XS weights.
#include "sm80/packed/lattice.cuh"

PORTABLE_PACKED_FEW(iq4, sparrow_packed::IQ4)
PORTABLE_PACKED_MANY(iq4, sparrow_packed::IQ4Near)
