// Matrix products with int4 weights in groups of 32 or 64, with any scales and zero points.
#include "sm90/packed/few_matrix.cuh"

PACKED_KERNELS(u4_g32_any, sparrow_packed::U4<4, true>)
PACKED_WIDE(u4_g32_any, sparrow_packed::U4<4, true>)
PACKED_FEW_MATRIX(u4_g32_any, sparrow_packed::U4<4, true>)
