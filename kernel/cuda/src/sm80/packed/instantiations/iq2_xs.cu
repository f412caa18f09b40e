// Portable matrix products with IQ2_XS weights.
#include "sm80/packed/lattice.cuh"

PORTABLE_PACKED_FEW(iq2_xs, sparrow_packed::IQ2XSNear)
PORTABLE_PACKED_MANY(iq2_xs, sparrow_packed::IQ2XSNear)
