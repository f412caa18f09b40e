// Products of fp8 for compute capability 8.9 and newer: codes of e4m3 are widened by an instruction.
#include "sm80/product/instantiations/fp8.cu"
