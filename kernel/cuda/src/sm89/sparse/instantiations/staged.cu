// Sparse attention over rows of codes with memory for rows as they are stored, for compute capability 8.9 and newer,
// which have an instruction that widens e4m3 codes.
#include "sm80/sparse/instantiations/staged.cu"
