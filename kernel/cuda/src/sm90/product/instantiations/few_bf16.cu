// Matrix products of few rows in bf16. The dynamic shared memory of a launch depends on the number of stages.
#include "sm90/product/few.cuh"

namespace {
using namespace sparrow_product;
}  // namespace

extern "C" __global__ void __launch_bounds__(FewShape<Bf16, 8, 1>::Threads, 1)
    sparrow_product_bf16_few8(const __grid_constant__ ProductArgs args) {
    multiply_few<FewShape<Bf16, 8, 1>>(args);
}
extern "C" __device__ const u32 sparrow_product_bf16_few8_shared = kSharedLimit;

extern "C" __global__ void __launch_bounds__(FewShape<Bf16, 16, 1>::Threads, 1)
    sparrow_product_bf16_few16(const __grid_constant__ ProductArgs args) {
    multiply_few<FewShape<Bf16, 16, 1>>(args);
}
extern "C" __device__ const u32 sparrow_product_bf16_few16_shared = kSharedLimit;

extern "C" __global__ void __launch_bounds__(FewShape<Bf16, 32, 1>::Threads, 1)
    sparrow_product_bf16_few32(const __grid_constant__ ProductArgs args) {
    multiply_few<FewShape<Bf16, 32, 1>>(args);
}
extern "C" __device__ const u32 sparrow_product_bf16_few32_shared = kSharedLimit;

extern "C" __global__ void __launch_bounds__(FewShape<Bf16, 64, 1>::Threads, 1)
    sparrow_product_bf16_few64(const __grid_constant__ ProductArgs args) {
    multiply_few<FewShape<Bf16, 64, 1>>(args);
}
extern "C" __device__ const u32 sparrow_product_bf16_few64_shared = kSharedLimit;

extern "C" __global__ void __launch_bounds__(FewShape<Bf16, 128, 1>::Threads, 1)
    sparrow_product_bf16_few128(const __grid_constant__ ProductArgs args) {
    multiply_few<FewShape<Bf16, 128, 1>>(args);
}
extern "C" __device__ const u32 sparrow_product_bf16_few128_shared = kSharedLimit;

extern "C" __global__ void __launch_bounds__(FewShape<Bf16, 64, 2>::Threads, 1)
    sparrow_product_bf16_few64_wide(const __grid_constant__ ProductArgs args) {
    multiply_few<FewShape<Bf16, 64, 2>>(args);
}
extern "C" __device__ const u32 sparrow_product_bf16_few64_wide_shared = kSharedLimit;
