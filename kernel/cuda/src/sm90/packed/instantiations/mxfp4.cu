// Matrix products with MXFP4 weights.
#include "sm90/packed/few_matrix.cuh"

PACKED_KERNELS(mxfp4, sparrow_packed::Mxfp4)
PACKED_WIDE(mxfp4, sparrow_packed::Mxfp4)
PACKED_FEW_EXPERTS(mxfp4, 4, sparrow_packed::Mxfp4)
PACKED_FEW_MATRIX(mxfp4, sparrow_packed::Mxfp4)
