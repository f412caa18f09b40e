// Dense attention, portable kernels, and the kernel that plans tiles, which is the same as for Hopper.
#include "sm80/dense/dense.cuh"
#include "sm90/dense/instantiations/plan.cu"

PORTABLE_DENSE(portable_dense_d128, 64, 64, 64)
PORTABLE_DENSE(portable_dense_d192, 128, 128, 64)
PORTABLE_DENSE(portable_dense_d256, 192, 256, 32)
