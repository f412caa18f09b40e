// Portable matrix products with int8 weights in groups of 32 or 64, with bf16 scales.
#include "sm80/packed/few.cuh"
#include "sm80/packed/many.cuh"

PORTABLE_PACKED(i8_g32, sparrow_packed::I8<4, false>)
