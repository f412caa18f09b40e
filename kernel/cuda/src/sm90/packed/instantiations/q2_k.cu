// Products with Q2_K.
#include "sm90/packed/product.cuh"

PACKED_KERNELS(q2_k, sparrow_packed::Q2K)
