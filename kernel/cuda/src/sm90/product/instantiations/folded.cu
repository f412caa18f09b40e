// Products with e2m1 weights whose scales fold into e4m3 codes: packing, products of few rows, and the conversion to
// e4m3 codes for products of many rows.
#include "sm90/experts/pack_folded.cuh"
#include "sm90/product/folded.cuh"
#include "smxx/base.h"

namespace {
using namespace sparrow_product;
}  // namespace

#define FOLDED_FEW(N)                                                                            \
    extern "C" __global__ void __launch_bounds__(FewShape<sparrow_product::Folded, N, 1>::Threads, 1) \
        sparrow_product_folded_few##N(const __grid_constant__ ProductArgs args) {                \
        multiply_few<FewShape<sparrow_product::Folded, N, 1>>(args);                             \
    }                                                                                            \
    extern "C" __device__ const u32 sparrow_product_folded_few##N##_shared = kSharedLimit - 1024;

FOLDED_FEW(16)
FOLDED_FEW(32)
FOLDED_FEW(64)

KERNEL(256) sparrow_product_fold(const __grid_constant__ PackE2M1Args args) {
    sparrow_experts::pack_folded<true>(args);
}

KERNEL(256) sparrow_product_unfold(const __grid_constant__ UnfoldArgs args) {
    begin_after_previous();
    sparrow_product::unfold(args);
}
