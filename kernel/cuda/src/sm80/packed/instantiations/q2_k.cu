// Portable matrix products with Q2_K weights.
#include "sm80/packed/few.cuh"
#include "sm80/packed/many.cuh"

PORTABLE_PACKED(q2_k, sparrow_packed::Q2K)
