// Sparse attention of the portable tier over 528-byte FP8 rows, which have no rotated part.
#include "sm80/sparse/nope.cuh"

PORTABLE_SPARSE(portable_sparse_nope, portable::NopeRow)
