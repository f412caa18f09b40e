// Index scores of 32 heads of the portable tier.
#include "sm80/index/index.cuh"

PORTABLE_INDEX(32)
