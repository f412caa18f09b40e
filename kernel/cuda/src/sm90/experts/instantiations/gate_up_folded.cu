// The gate and up projections of e2m1 experts whose scales are folded into e4m3.
#include "sm90/experts/product.cuh"

namespace {
using Single = sparrow_experts::Shape<sparrow_experts::Folded, sparrow_experts::Step::kGateUp, 16, 5>;
using Few = sparrow_experts::Shape<sparrow_experts::Folded, sparrow_experts::Step::kGateUp, 64, 8>;
}  // namespace

extern "C" __global__ void __launch_bounds__(Single::Threads, Single::Blocks)
    sparrow_experts_gate_up_folded_single(const __grid_constant__ ExpertsArgs args) {
    sparrow_experts::multiply_experts<Single>(args);
}

extern "C" __global__ void __launch_bounds__(Few::Threads, 1)
    sparrow_experts_gate_up_folded_few(const __grid_constant__ ExpertsArgs args) {
    sparrow_experts::multiply_experts<Few>(args);
}

// The dynamic shared memory of a launch, in bytes.
extern "C" __device__ const u32 sparrow_experts_gate_up_folded_single_shared = sparrow_experts::shared_bytes<Single>();
extern "C" __device__ const u32 sparrow_experts_gate_up_folded_few_shared = sparrow_experts::shared_bytes<Few>();

// For fewer items than SMs: a thread block has two sets of accumulators, and weights are widened while products run.
using Lone = sparrow_experts::Shape<sparrow_experts::Folded, sparrow_experts::Step::kGateUp, 16, 10, 5, true>;

extern "C" __global__ void __launch_bounds__(Lone::Threads, Lone::Blocks)
    sparrow_experts_gate_up_folded_lone(const __grid_constant__ ExpertsArgs args) {
    sparrow_experts::multiply_experts<Lone>(args);
}
extern "C" __device__ const u32 sparrow_experts_gate_up_folded_lone_shared = sparrow_experts::shared_bytes<Lone>();
