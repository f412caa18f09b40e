#include "smxx/quant/many.cuh"
#include "smxx/quant/norm.cuh"

KERNEL(kThreads) quantise_rows(const __grid_constant__ QuantiseRowsArgs a) { quantise_rows_body<1>(a); }
KERNEL(kThreads) quantise_rows_many(const __grid_constant__ QuantiseRowsArgs a) { quantise_many_body<4>(a); }

// Norm kernels for rows of at most 4096, 8192 and 16384 columns.
KERNEL(kNormThreads) norm_quantise(const __grid_constant__ NormQuantiseArgs a) {
    norm_quantise_body<1, false>(a, blockIdx.x);
}
KERNEL(kNormThreads) norm_quantise_long(const __grid_constant__ NormQuantiseArgs a) {
    norm_quantise_body<2, false>(a, blockIdx.x);
}
KERNEL(kNormThreads) norm_quantise_wide(const __grid_constant__ NormQuantiseArgs a) {
    norm_quantise_body<4, false>(a, blockIdx.x);
}
KERNEL(kNormThreads) combine_norm(const __grid_constant__ NormQuantiseArgs a) {
    norm_quantise_body<1, true>(a, blockIdx.x);
}
KERNEL(kNormThreads) combine_norm_long(const __grid_constant__ NormQuantiseArgs a) {
    norm_quantise_body<2, true>(a, blockIdx.x);
}
KERNEL(kNormThreads) combine_norm_wide(const __grid_constant__ NormQuantiseArgs a) {
    norm_quantise_body<4, true>(a, blockIdx.x);
}
