// Matrix products with int4 weights in groups of 32 or 64, with any scales and zero points.
#include "sm90/packed/six.cuh"

PACKED_KERNELS(u4_g32_any, sparrow_packed::U4<4, true>)
PACKED_WIDE(u4_g32_any, sparrow_packed::U4<4, true>)
PACKED_SIX(u4_g32_any, sparrow_packed::U4<4, true>)
