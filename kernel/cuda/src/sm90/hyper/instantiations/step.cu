// The streams of residual rows from the output of a sublayer to the input of the next one, for few rows.
#include "sm90/hyper/step.cuh"

extern "C" __global__ void __launch_bounds__(sparrow_hyper::kStepThreads, 1)
    sparrow_hyper_step(const __grid_constant__ HyperStepArgs args) {
    sparrow_hyper::step(args);
}
extern "C" __device__ const u32 sparrow_hyper_step_shared = sparrow_hyper::kStepShared;
