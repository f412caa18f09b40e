// Matrix products with int8 weights in groups of 32 or 64, with any scales and zero points.
#include "sm90/packed/product.cuh"

PACKED_KERNELS_8_BITS(i8_g32_any, sparrow_packed::I8<4, true>)
PACKED_WIDE(i8_g32_any, sparrow_packed::I8<4, true>)
