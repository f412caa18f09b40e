// Matrix products with Q2_K weights.
#include "sm90/packed/product.cuh"

PACKED_KERNELS_FINE(q2_k, sparrow_packed::Q2K)
PACKED_DUO(q2_k, sparrow_packed::Q2K)
