// Matrix products with Q6_K weights.
#include "sm90/packed/product.cuh"

PACKED_KERNELS(q6_k, sparrow_packed::Q6K)
PACKED_WIDE(q6_k, sparrow_packed::Q6K)
