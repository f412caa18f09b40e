// Sparse attention over 528-byte rows for compute capability 8.9 and newer: an instruction widens codes of e4m3.
#include "sm80/sparse/instantiations/nope.cu"
