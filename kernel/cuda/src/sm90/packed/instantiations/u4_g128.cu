// Matrix products with int4 weights in groups of 128 or more, with bf16 scales.
#include "sm90/packed/few_matrix.cuh"

PACKED_KERNELS(u4_g128, sparrow_packed::U4<1, false>)
PACKED_WIDE(u4_g128, sparrow_packed::U4<1, false>)
PACKED_FEW_MATRIX(u4_g128, sparrow_packed::U4<1, false>)
