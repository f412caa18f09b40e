// The other portable expert kernels: sorting and quantising before the matrix products, the weighted sum after them,
// and packing when weights are loaded. Except for the packing of e2m1, their source is that of the Hopper kernels.
#include "sm80/experts/pack_e2m1.cuh"
#include "sm90/experts/instantiations/rows.cu"

KERNEL(kThreads) sparrow_experts_pack_e2m1(const __grid_constant__ PackE2M1Args args) { portable::pack_e2m1(args); }
KERNEL(kThreads) sparrow_experts_pack_folded(const __grid_constant__ PackE2M1Args args) {
    portable::pack_folded(args);
}
