// Portable matrix products with int8 weights in groups of multiples of 128, with any scales.
#include "sm80/packed/few.cuh"
#include "sm80/packed/many.cuh"

PORTABLE_PACKED(i8_g128_any, sparrow_packed::I8<1, true>)
