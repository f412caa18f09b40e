// Products with int8 in groups of 32 or 64, bf16 scales.
#include "sm90/packed/product.cuh"

PACKED_KERNELS_8_BITS(i8_g32, sparrow_packed::I8<4, false>)
