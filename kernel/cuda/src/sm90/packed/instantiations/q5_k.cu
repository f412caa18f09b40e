// Matrix products with Q5_K weights.
#include "sm90/packed/product.cuh"

PACKED_KERNELS(q5_k, sparrow_packed::Q5K)
