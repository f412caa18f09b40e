#include "smxx/rows/locate.cuh"
#include "smxx/rows/norm.cuh"

KERNEL(kThreads) rms_norm(const __grid_constant__ RMSNormArgs a) { rms_norm_body(a); }
KERNEL(kThreads) rms_norm_long(const __grid_constant__ RMSNormArgs a) { rms_norm_long_body(a); }
KERNEL(kThreads) locate_positions(const __grid_constant__ LocateArgs a) { locate_body(a, blockIdx.x); }
