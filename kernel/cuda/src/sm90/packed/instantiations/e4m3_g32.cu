// Matrix products with e4m3 weights in blocks of 32 or 64 columns, with power-of-two scales.
#include "sm90/packed/product.cuh"

PACKED_KERNELS_8_BITS(e4m3_g32, sparrow_packed::E4m3<4, false>)
PACKED_WIDE(e4m3_g32, sparrow_packed::E4m3<4, false>)
