// Matrix products with NVFP4 weights.
#include "sm90/packed/six.cuh"

PACKED_KERNELS(nvfp4, sparrow_packed::Nvfp4)
PACKED_WIDE(nvfp4, sparrow_packed::Nvfp4)
PACKED_DUO(nvfp4, sparrow_packed::Nvfp4)
PACKED_SIX(nvfp4, sparrow_packed::Nvfp4)
