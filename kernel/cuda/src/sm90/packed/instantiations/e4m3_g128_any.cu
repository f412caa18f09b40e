// Matrix products with e4m3 weights that have a scale per 128 or more columns of a row.
#include "sm90/packed/product.cuh"

PACKED_KERNELS_8_BITS(e4m3_g128_any, sparrow_packed::E4m3<1, true>)
PACKED_WIDE(e4m3_g128_any, sparrow_packed::E4m3<1, true>)
