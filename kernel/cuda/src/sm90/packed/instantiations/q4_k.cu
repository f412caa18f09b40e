// Matrix products with Q4_K weights.
#include "sm90/packed/product.cuh"

PACKED_KERNELS_FINE(q4_k, sparrow_packed::Q4K)
PACKED_WIDE(q4_k, sparrow_packed::Q4K)
