// Products with e4m3 in blocks of 32 or 64 columns, scales of powers of two.
#include "sm90/packed/product.cuh"

PACKED_KERNELS_8_BITS(e4m3_g32, sparrow_packed::E4m3<4, false>)
