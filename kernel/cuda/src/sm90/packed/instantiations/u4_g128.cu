// Products with int4 in groups of 128 or more, bf16 scales.
#include "sm90/packed/product.cuh"

PACKED_KERNELS(u4_g128, sparrow_packed::U4<1, false>)
