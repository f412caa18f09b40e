// Matrix products with Q3_K weights.
#include "sm90/packed/product.cuh"

PACKED_KERNELS_FINE(q3_k, sparrow_packed::Q3K)
PACKED_DUO(q3_k, sparrow_packed::Q3K)
