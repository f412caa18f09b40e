#include "smxx/hyper/head_norm.cuh"
#include "smxx/hyper/mix.cuh"
#include "smxx/hyper/post.cuh"

extern "C" __global__ void __launch_bounds__(kThreads, 2) hyper_mix(const __grid_constant__ HyperMixArgs a) {
    hyper_mix_body<2>(a);
}
// For rows of more than 4096 columns.
extern "C" __global__ void __launch_bounds__(kThreads, 1) hyper_mix_wide(const __grid_constant__ HyperMixArgs a) {
    hyper_mix_body<4>(a);
}
KERNEL(kThreads) hyper_post(const __grid_constant__ HyperPostArgs a) { hyper_post_body(a); }
KERNEL(kThreads) head_norm(const __grid_constant__ HeadNormArgs a) { head_norm_body(a); }
