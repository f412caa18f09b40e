// Matrix products of few rows in e4m3. The dynamic shared memory of a launch depends on the number of stages.
#include "sm90/product/few.cuh"

namespace {
using namespace sparrow_product;
}  // namespace

extern "C" __global__ void __launch_bounds__(FewShape<E4m3, 8, 1>::Threads, 1)
    sparrow_product_fp8_few8(const __grid_constant__ ProductArgs args) {
    multiply_few<FewShape<E4m3, 8, 1>>(args);
}
extern "C" __device__ const u32 sparrow_product_fp8_few8_shared = kSharedLimit;

extern "C" __global__ void __launch_bounds__(FewShape<E4m3, 16, 1>::Threads, 1)
    sparrow_product_fp8_few16(const __grid_constant__ ProductArgs args) {
    multiply_few<FewShape<E4m3, 16, 1>>(args);
}
extern "C" __device__ const u32 sparrow_product_fp8_few16_shared = kSharedLimit;

extern "C" __global__ void __launch_bounds__(FewShape<E4m3, 32, 1>::Threads, 1)
    sparrow_product_fp8_few32(const __grid_constant__ ProductArgs args) {
    multiply_few<FewShape<E4m3, 32, 1>>(args);
}
extern "C" __device__ const u32 sparrow_product_fp8_few32_shared = kSharedLimit;

extern "C" __global__ void __launch_bounds__(FewShape<E4m3, 64, 1>::Threads, 1)
    sparrow_product_fp8_few64(const __grid_constant__ ProductArgs args) {
    multiply_few<FewShape<E4m3, 64, 1>>(args);
}
extern "C" __device__ const u32 sparrow_product_fp8_few64_shared = kSharedLimit;

extern "C" __global__ void __launch_bounds__(FewShape<E4m3, 128, 1>::Threads, 1)
    sparrow_product_fp8_few128(const __grid_constant__ ProductArgs args) {
    multiply_few<FewShape<E4m3, 128, 1>>(args);
}
extern "C" __device__ const u32 sparrow_product_fp8_few128_shared = kSharedLimit;

extern "C" __global__ void __launch_bounds__(FewShape<E4m3, 64, 1, 64>::Threads, 1)
    sparrow_product_fp8_few64_turned(const __grid_constant__ ProductArgs args) {
    multiply_few<FewShape<E4m3, 64, 1, 64>>(args);
}
extern "C" __device__ const u32 sparrow_product_fp8_few64_turned_shared = kSharedLimit;
