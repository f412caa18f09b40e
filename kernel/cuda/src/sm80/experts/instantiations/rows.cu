// Portable expert kernels other than matrix products: sorting and quantising before the products, the weighted sum
// after them, and packing when weights are loaded. All except the packing of e2m1 use the source for Hopper.
#include "sm80/experts/pack_e2m1.cuh"
#include "sm90/experts/instantiations/rows.cu"

KERNEL(kThreads) sparrow_experts_pack_e2m1(const __grid_constant__ PackE2M1Args args) { portable::pack_e2m1(args); }
KERNEL(kThreads) sparrow_experts_pack_folded(const __grid_constant__ PackE2M1Args args) {
    portable::pack_folded(args);
}
