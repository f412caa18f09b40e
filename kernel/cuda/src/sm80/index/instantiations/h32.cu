// Index scores of 32 heads, portable kernels.
#include "sm80/index/index.cuh"

PORTABLE_INDEX(32)
