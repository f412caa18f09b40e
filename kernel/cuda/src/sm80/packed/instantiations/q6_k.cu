// Portable matrix products with Q6_K weights.
#include "sm80/packed/few.cuh"
#include "sm80/packed/many.cuh"

PORTABLE_PACKED(q6_k, sparrow_packed::Q6K)
