#include "smxx/rope/rope.cuh"

KERNEL(kThreads) compute_angles(const __grid_constant__ AnglesArgs a) { angles_body(a); }
KERNEL(kThreads) rotate_heads(const __grid_constant__ RotateArgs a) { rotate_body(a, blockIdx.x, blockIdx.y); }
