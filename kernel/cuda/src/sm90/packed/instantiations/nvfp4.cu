// Matrix products with NVFP4 weights.
#include "sm90/packed/trio.cuh"

PACKED_KERNELS(nvfp4, sparrow_packed::Nvfp4)
PACKED_WIDE(nvfp4, sparrow_packed::Nvfp4)
PACKED_DUO(nvfp4, sparrow_packed::Nvfp4)
PACKED_TRIO(nvfp4, sparrow_packed::Nvfp4)
