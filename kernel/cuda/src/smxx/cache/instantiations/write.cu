#include "smxx/cache/write.cuh"

KERNEL(kThreads) write_main_bf16(const __grid_constant__ WriteMainArgs a) { write_main<Bf16Row>(a, blockIdx.x); }
KERNEL(kThreads) write_main_block(const __grid_constant__ WriteMainArgs a) { write_main<BlockRow>(a, blockIdx.x); }
KERNEL(kThreads) write_main_raw(const __grid_constant__ WriteMainArgs a) { write_main<RawRow>(a, blockIdx.x); }
