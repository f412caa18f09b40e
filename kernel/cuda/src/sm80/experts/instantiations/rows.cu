// What surrounds the expert products of the portable tier: sorting and quantising before, the weighted sum after,
// packing at load. All but the packing of e2m1 is the Hopper tier's source.
#include "sm80/experts/pack_e2m1.cuh"
#include "sm90/experts/instantiations/rows.cu"

KERNEL(kThreads) sparrow_experts_pack_e2m1(const __grid_constant__ PackE2M1Args args) { portable::pack_e2m1(args); }
KERNEL(kThreads) sparrow_experts_pack_folded(const __grid_constant__ PackE2M1Args args) {
    portable::pack_folded(args);
}
