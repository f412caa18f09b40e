// Portable matrix products with int4 weights in groups of multiples of 128, with bf16 scales.
#include "sm80/packed/few.cuh"
#include "sm80/packed/many.cuh"

PORTABLE_PACKED(u4_g128, sparrow_packed::U4<1, false>)
