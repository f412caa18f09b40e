// The output of a sublayer is added to residual streams and the streams are multiplied, for many rows.
#include "sm90/hyper/many.cuh"

extern "C" __global__ void __launch_bounds__(sparrow_hyper::kManyThreads, 1)
    sparrow_hyper_many(const __grid_constant__ HyperManyArgs args) {
    sparrow_hyper::add_and_multiply<false>(args);
}
extern "C" __device__ const u32 sparrow_hyper_many_shared = sparrow_hyper::kManyShared;

// With results of experts.
extern "C" __global__ void __launch_bounds__(sparrow_hyper::kManyThreads, 1)
    sparrow_hyper_many_sum(const __grid_constant__ HyperManyArgs args) {
    sparrow_hyper::add_and_multiply<true>(args);
}
extern "C" __device__ const u32 sparrow_hyper_many_sum_shared = sparrow_hyper::kManyShared;
