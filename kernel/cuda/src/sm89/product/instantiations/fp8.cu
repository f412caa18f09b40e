// Matrix products in fp8 for compute capability 8.9 and newer, which have an instruction that widens e4m3 codes.
#include "sm80/product/instantiations/fp8.cu"
