#include "smxx/v4/combine.cuh"
#include "smxx/v4/entry.cuh"

KERNEL(kThreads) write_v4(const __grid_constant__ WriteV4Args a) { write_v4_body(a, blockIdx.x); }
KERNEL(kThreads) gather_slots_v4(const __grid_constant__ GatherSlotsArgs a) { gather_v4(a); }
KERNEL(kThreads) gather_pages_v4(const __grid_constant__ GatherPagesArgs a) { gather_v4(a); }
KERNEL(kThreads) combine_v4(const __grid_constant__ CombineV4Args a) { combine_v4_body(a); }
