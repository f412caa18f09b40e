#include "smxx/joint/joint.cuh"

KERNEL(kThreads) put_four(const __grid_constant__ PutFourArgs a) { put_four_body(a, blockIdx.x, blockIdx.y); }
KERNEL(kThreads) head_norm_turn(const __grid_constant__ HeadTurnArgs a) { head_turn_body(a, blockIdx.x); }
KERNEL(kThreads) quantise_turned(const __grid_constant__ QuantiseTurnedArgs a) { quantise_turned_body<1>(a); }
KERNEL(kThreads) quantise_turned_many(const __grid_constant__ QuantiseTurnedArgs a) { quantise_turned_body<4>(a); }
KERNEL(kThreads) hyper_post_sum(const __grid_constant__ HyperSumArgs a) { hyper_sum_body(a); }
// Two blocks per SM: without this bound the compiler uses 64 registers and spills.
extern "C" __global__ void __launch_bounds__(kThreads, 2) small_parts(const __grid_constant__ PartsArgs a) {
    parts_body(a);
}
KERNEL(kMixThreads) mix_norm(const __grid_constant__ MixNormArgs a) { mix_norm_body<2, false>(a); }
extern "C" __global__ void __launch_bounds__(kMixThreads, 4) mix_norm_many(const __grid_constant__ MixNormArgs a) {
    mix_norm_body<2, true>(a);
}
// For rows of more than 4096 columns; the second kernel is for many rows of at most 6144.
extern "C" __global__ void __launch_bounds__(kMixThreads, 3) mix_norm_wide_many(const __grid_constant__ MixNormArgs a) {
    mix_norm_body<3, true>(a);
}
KERNEL(kMixThreads) mix_norm_wide(const __grid_constant__ MixNormArgs a) { mix_norm_body<4, false>(a); }
