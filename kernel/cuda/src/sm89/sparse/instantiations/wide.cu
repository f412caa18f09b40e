// Sparse attention with 64 heads in a block for compute capability 8.9 and newer, which have an instruction that widens
// e4m3 codes.
#include "sm80/sparse/instantiations/wide.cu"
