// Packs e2m1 experts when they are loaded.
#include "sm90/experts/pack_e2m1.cuh"
#include "sm90/experts/pack_folded.cuh"

KERNEL(kThreads) sparrow_experts_pack_e2m1(const __grid_constant__ PackE2M1Args args) {
    sparrow_experts::pack_e2m1(args);
}
KERNEL(kThreads) sparrow_experts_pack_folded(const __grid_constant__ PackE2M1Args args) {
    sparrow_experts::pack_folded<false>(args);
}
