// Matrix products with int4 weights in groups of 128 or more, with any scales and zero points.
#include "sm90/packed/trio.cuh"

PACKED_KERNELS(u4_g128_any, sparrow_packed::U4<1, true>)
PACKED_WIDE(u4_g128_any, sparrow_packed::U4<1, true>)
PACKED_TRIO(u4_g128_any, sparrow_packed::U4<1, true>)
