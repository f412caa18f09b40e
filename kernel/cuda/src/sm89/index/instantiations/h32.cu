// Index scores of 32 heads for compute capability 8.9 and newer, which have an instruction that widens e4m3 codes.
#include "sm80/index/instantiations/h32.cu"
