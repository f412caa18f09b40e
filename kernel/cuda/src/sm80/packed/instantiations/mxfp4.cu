// Portable matrix products with MXFP4 weights.
#include "sm80/packed/few.cuh"
#include "sm80/packed/many.cuh"

PORTABLE_PACKED(mxfp4, sparrow_packed::Mxfp4)
