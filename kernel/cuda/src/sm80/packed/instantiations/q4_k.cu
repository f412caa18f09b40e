// Portable matrix products with Q4_K weights.
#include "sm80/packed/few.cuh"
#include "sm80/packed/many.cuh"

PORTABLE_PACKED(q4_k, sparrow_packed::Q4K)
