// Index scores of 64 heads for compute capability 8.9 and newer: codes of e4m3 are widened by an instruction.
#include "sm80/index/instantiations/h64.cu"
