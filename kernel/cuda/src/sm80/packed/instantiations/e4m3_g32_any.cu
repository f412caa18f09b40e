// Portable matrix products with e4m3 weights in groups of 32 or 64, with any scales.
#include "sm80/packed/few.cuh"
#include "sm80/packed/many.cuh"

PORTABLE_PACKED(e4m3_g32_any, sparrow_packed::E4m3<4, true>)
