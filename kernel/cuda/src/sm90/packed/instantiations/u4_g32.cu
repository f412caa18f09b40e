// Matrix products with int4 weights in groups of 32 or 64, with bf16 scales.
#include "sm90/packed/few_matrix.cuh"

PACKED_KERNELS(u4_g32, sparrow_packed::U4<4, false>)
PACKED_WIDE(u4_g32, sparrow_packed::U4<4, false>)
PACKED_FEW_MATRIX(u4_g32, sparrow_packed::U4<4, false>)
