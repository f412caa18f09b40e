// Portable matrix products with int4 weights in groups of 32 or 64, with bf16 scales.
#include "sm80/packed/few.cuh"
#include "sm80/packed/many.cuh"

PORTABLE_PACKED(u4_g32, sparrow_packed::U4<4, false>)
