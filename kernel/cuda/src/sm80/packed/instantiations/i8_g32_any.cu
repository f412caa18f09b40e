// Portable matrix products with int8 weights in groups of 32 or 64, with any scales.
#include "sm80/packed/few.cuh"
#include "sm80/packed/many.cuh"

PORTABLE_PACKED(i8_g32_any, sparrow_packed::I8<4, true>)
