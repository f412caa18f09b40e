// The gate and up projections of e2m1 experts whose scales are folded into e4m3, for many rows.
#include "sm90/experts/wide.cuh"

namespace {
using Shape = sparrow_experts::Wide<sparrow_experts::Step::kGateUp>;
}  // namespace

extern "C" __global__ void __launch_bounds__(Shape::Threads, 1)
    sparrow_experts_gate_up_folded_wide(const __grid_constant__ ExpertsArgs args) {
    sparrow_experts::multiply_wide_experts<Shape>(args);
}

// The dynamic shared memory of a launch, in bytes.
extern "C" __device__ const u32 sparrow_experts_gate_up_folded_wide_shared = sparrow_experts::shared_bytes<Shape>();
