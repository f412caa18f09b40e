// Index scores of 64 heads, portable kernels.
#include "sm80/index/index.cuh"

PORTABLE_INDEX(64)
