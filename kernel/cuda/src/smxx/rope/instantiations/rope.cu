#include "smxx/rope/rope.cuh"

KERNEL(kThreads) compute_angles(const __grid_constant__ AnglesArgs a) { angles_body(a, blockIdx.x); }
