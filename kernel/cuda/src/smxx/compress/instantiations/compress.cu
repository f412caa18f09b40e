#include "smxx/compress/compress.cuh"

KERNEL(kThreads) compress_groups(const __grid_constant__ CompressArgs a) { compress_body(a, blockIdx.x, blockIdx.y); }
