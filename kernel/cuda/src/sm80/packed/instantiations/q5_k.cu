// Portable matrix products with Q5_K weights.
#include "sm80/packed/few.cuh"
#include "sm80/packed/many.cuh"

PORTABLE_PACKED(q5_k, sparrow_packed::Q5K)
