// Portable matrix products with Q3_K weights.
#include "sm80/packed/few.cuh"
#include "sm80/packed/many.cuh"

PORTABLE_PACKED(q3_k, sparrow_packed::Q3K)
