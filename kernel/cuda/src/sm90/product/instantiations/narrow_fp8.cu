// Matrix products of few rows in e4m3 with small weights whose k has four parts. The dynamic shared memory of a
// launch depends on the number of stages.
#include "sm90/product/narrow.cuh"

namespace {
using namespace sparrow_product;
}  // namespace

extern "C" __global__ void __launch_bounds__(NarrowShape<1>::Threads, 1)
    sparrow_product_fp8_narrow64(const __grid_constant__ ProductArgs args) {
    multiply_narrow<NarrowShape<1>>(args);
}
extern "C" __device__ const u32 sparrow_product_fp8_narrow64_shared = kSharedLimit;

extern "C" __global__ void __launch_bounds__(NarrowShape<2>::Threads, 1)
    sparrow_product_fp8_narrow128(const __grid_constant__ ProductArgs args) {
    multiply_narrow<NarrowShape<2>>(args);
}
extern "C" __device__ const u32 sparrow_product_fp8_narrow128_shared = kSharedLimit;
