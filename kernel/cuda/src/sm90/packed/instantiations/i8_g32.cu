// Matrix products with int8 weights in groups of 32 or 64, with bf16 scales.
#include "sm90/packed/product.cuh"

PACKED_KERNELS_8_BITS(i8_g32, sparrow_packed::I8<4, false>)
PACKED_WIDE(i8_g32, sparrow_packed::I8<4, false>)
