// Matrix products with MXFP4 weights.
#include "sm90/packed/trio.cuh"

PACKED_KERNELS(mxfp4, sparrow_packed::Mxfp4)
PACKED_WIDE(mxfp4, sparrow_packed::Mxfp4)
PACKED_DUO(mxfp4, sparrow_packed::Mxfp4)
PACKED_TRIO(mxfp4, sparrow_packed::Mxfp4)
