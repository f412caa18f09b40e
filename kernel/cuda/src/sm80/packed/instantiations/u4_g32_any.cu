// Portable matrix products with int4 weights in groups of 32 or 64, with any scales.
#include "sm80/packed/few.cuh"
#include "sm80/packed/many.cuh"

PORTABLE_PACKED(u4_g32_any, sparrow_packed::U4<4, true>)
