// Portable matrix products with int4 weights in groups of multiples of 128, with any scales.
#include "sm80/packed/few.cuh"
#include "sm80/packed/many.cuh"
#include "smxx/packed/decode_any.cuh"

PORTABLE_PACKED(u4_g128_any, sparrow_packed::U4OnValues)
