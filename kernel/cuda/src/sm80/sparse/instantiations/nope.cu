// Sparse attention over 528-byte FP8 rows, which have no rotated part, portable kernels.
#include "sm80/sparse/nope.cuh"

PORTABLE_SPARSE(portable_sparse_nope, portable::NopeRow)
