// Matrix products with Q2_K weights.
#include "sm90/packed/few_matrix.cuh"

PACKED_KERNELS_FINE(q2_k, sparrow_packed::Q2K)
PACKED_FEW_EXPERTS(q2_k, 8, sparrow_packed::Q2K)
PACKED_FEW_MATRIX(q2_k, sparrow_packed::Q2K)
