#include "smxx/hyper/head_norm.cuh"
#include "smxx/hyper/mix.cuh"
#include "smxx/hyper/post.cuh"

KERNEL(kThreads) hyper_mix(const __grid_constant__ HyperMixArgs a) { hyper_mix_body(a); }
KERNEL(kThreads) hyper_post(const __grid_constant__ HyperPostArgs a) { hyper_post_body(a); }
KERNEL(kThreads) head_norm(const __grid_constant__ HeadNormArgs a) { head_norm_body(a); }
