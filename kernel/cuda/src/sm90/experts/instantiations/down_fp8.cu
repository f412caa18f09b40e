// The down projection of e4m3 experts.
#include "sm90/experts/product.cuh"

namespace {
using Few = sparrow_experts::Shape<sparrow_experts::E4m3, sparrow_experts::Step::kDown, 64, 5>;
using Many = sparrow_experts::Shape<sparrow_experts::E4m3, sparrow_experts::Step::kDown, 128, 4>;
}  // namespace

extern "C" __global__ void __launch_bounds__(sparrow_experts::kThreads, 1)
    sparrow_experts_down_fp8_few(const __grid_constant__ ExpertsArgs args) {
    sparrow_experts::multiply_experts<Few>(args);
}

extern "C" __global__ void __launch_bounds__(sparrow_experts::kThreads, 1)
    sparrow_experts_down_fp8_many(const __grid_constant__ ExpertsArgs args) {
    sparrow_experts::multiply_experts<Many>(args);
}

// The dynamic shared memory of a launch, in bytes.
extern "C" __device__ const u32 sparrow_experts_down_fp8_few_shared = sparrow_experts::shared_bytes<Few>();
extern "C" __device__ const u32 sparrow_experts_down_fp8_many_shared = sparrow_experts::shared_bytes<Many>();
