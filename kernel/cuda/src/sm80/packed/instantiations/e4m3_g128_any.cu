// Portable matrix products with e4m3 weights in groups of multiples of 128, with any scales.
#include "sm80/packed/few.cuh"
#include "sm80/packed/many.cuh"

PORTABLE_PACKED(e4m3_g128_any, sparrow_packed::E4m3<1, true>)
