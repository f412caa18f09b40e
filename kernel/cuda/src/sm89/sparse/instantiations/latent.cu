// Attention over every key for compute capability 8.9 and newer: codes of e4m3 are widened by an instruction.
#include "sm80/sparse/instantiations/latent.cu"
