// Matrix products with NVFP4 weights.
#include "sm90/packed/few_matrix.cuh"

PACKED_KERNELS(nvfp4, sparrow_packed::Nvfp4)
PACKED_WIDE(nvfp4, sparrow_packed::Nvfp4)
PACKED_FEW_EXPERTS(nvfp4, 4, sparrow_packed::Nvfp4)
PACKED_FEW_MATRIX(nvfp4, sparrow_packed::Nvfp4)
