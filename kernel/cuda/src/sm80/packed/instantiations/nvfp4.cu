// Portable matrix products with NVFP4 weights.
#include "sm80/packed/few.cuh"
#include "sm80/packed/many.cuh"

PORTABLE_PACKED(nvfp4, sparrow_packed::Nvfp4)
