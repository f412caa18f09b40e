// Matrix products with Q3_K weights.
#include "sm90/packed/few_matrix.cuh"

PACKED_KERNELS_FINE(q3_k, sparrow_packed::Q3K)
PACKED_FEW_EXPERTS(q3_k, 4, sparrow_packed::Q3K)
PACKED_FEW_MATRIX(q3_k, sparrow_packed::Q3K)
