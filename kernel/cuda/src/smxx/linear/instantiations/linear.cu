#include "smxx/linear/conv.cuh"
#include "smxx/linear/delta.cuh"
#include "smxx/linear/norm.cuh"
#include "smxx/linear/spread.cuh"

KERNEL(kThreads) convolve_few(const __grid_constant__ ConvolveArgs a) { convolve_few_body(a); }
KERNEL(kThreads) convolve_many(const __grid_constant__ ConvolveArgs a) { convolve_many_body(a); }
KERNEL(kThreads) convolve_keep(const __grid_constant__ ConvolveArgs a) { convolve_keep_body(a); }
extern "C" __global__ void __launch_bounds__(kThreads, 3) delta_rule(const __grid_constant__ DeltaArgs a) {
    delta_body<false>(a);
}
extern "C" __global__ void __launch_bounds__(kThreads + 32 * kDeltaPreparers,
                                             1) delta_rule_many(const __grid_constant__ DeltaArgs a) {
    delta_body<true>(a);
}
KERNEL(kThreads) delta_hold(const __grid_constant__ DeltaArgs a) { delta_hold_body(a); }
KERNEL(kThreads) gated_norm(const __grid_constant__ GatedNormArgs a) { gated_norm_body(a); }
KERNEL(kThreads) layer_norm_rows(const __grid_constant__ LayerNormArgs a) { layer_norm_body(a); }
KERNEL(kThreads) mean_streams(const __grid_constant__ MeanStreamsArgs a) { mean_streams_body(a); }
KERNEL(kThreads) spread_pools(const __grid_constant__ SpreadPoolsArgs a) { spread_pools_body(a); }
