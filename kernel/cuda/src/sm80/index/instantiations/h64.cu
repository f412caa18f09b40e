// Index scores of 64 heads of the portable tier.
#include "sm80/index/index.cuh"

PORTABLE_INDEX(64)
