// Matrix products with int8 weights in groups of 128 or more, with any scales and zero points.
#include "sm90/packed/product.cuh"

PACKED_KERNELS_8_BITS(i8_g128_any, sparrow_packed::I8<1, true>)
PACKED_WIDE(i8_g128_any, sparrow_packed::I8<1, true>)
