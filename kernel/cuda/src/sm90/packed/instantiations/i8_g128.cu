// Matrix products with int8 weights in groups of 128 or more, with bf16 scales.
#include "sm90/packed/product.cuh"

PACKED_KERNELS_8_BITS(i8_g128, sparrow_packed::I8<1, false>)
PACKED_WIDE(i8_g128, sparrow_packed::I8<1, false>)
