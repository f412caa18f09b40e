// Expert kernels other than matrix products: sorting and quantising before the products, the weighted sum after them,
// and packing when weights are loaded.
#include "sm90/experts/combine.cuh"
#include "sm90/experts/pack.cuh"
#include "sm90/experts/prepare.cuh"

extern "C" __global__ void __launch_bounds__(sparrow_experts::kPrepareThreads, sparrow_experts::kPrepareBlocks)
    sparrow_experts_prepare(const __grid_constant__ ExpertsArgs args) {
    sparrow_experts::prepare(args);
}

extern "C" __global__ void __launch_bounds__(sparrow_experts::kPrepareThreads, sparrow_experts::kPrepareBlocks)
    sparrow_experts_route(const __grid_constant__ RouteExpertsArgs args) {
    sparrow_experts::route_and_prepare(args);
}

KERNEL(kThreads) sparrow_experts_combine(const __grid_constant__ ExpertsArgs args) { sparrow_experts::combine(args); }
KERNEL(kThreads) sparrow_experts_pack(const __grid_constant__ PackExpertArgs args) { sparrow_experts::pack(args); }
