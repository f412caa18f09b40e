#include "smxx/pick/pick.cuh"

KERNEL(kThreads) pick_rows(const __grid_constant__ PickArgs a) { pick_body(a, blockIdx.x); }
KERNEL(kThreads) put_rows(const __grid_constant__ PutArgs a) { put_body(a, blockIdx.x); }
