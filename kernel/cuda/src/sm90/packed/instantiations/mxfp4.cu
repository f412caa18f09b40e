// Matrix products with MXFP4 weights.
#include "sm90/packed/six.cuh"

PACKED_KERNELS(mxfp4, sparrow_packed::Mxfp4)
PACKED_WIDE(mxfp4, sparrow_packed::Mxfp4)
PACKED_DUO(mxfp4, sparrow_packed::Mxfp4)
PACKED_SIX(mxfp4, sparrow_packed::Mxfp4)
