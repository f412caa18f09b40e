// Matrix products with int4 weights in groups of 128 or more, with any scales and zero points.
#include "sm90/packed/few_matrix.cuh"
#include "smxx/packed/decode_any.cuh"

PACKED_KERNELS(u4_g128_any, sparrow_packed::U4OnSums)
PACKED_WIDE(u4_g128_any, sparrow_packed::U4OnSums)
PACKED_FEW_MATRIX(u4_g128_any, sparrow_packed::U4OnSums)
