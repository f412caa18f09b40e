// Products of many rows in e4m3.
#include "sm90/product/many.cuh"

namespace {
using namespace sparrow_product;
}  // namespace

extern "C" __global__ void __launch_bounds__(ManyShape<E4m3, 128, false>::Threads, 1)
    sparrow_product_fp8_many128(const __grid_constant__ ProductArgs args) {
    multiply_many<ManyShape<E4m3, 128, false>>(args);
}
extern "C" __device__ const u32 sparrow_product_fp8_many128_shared = many_shared_bytes<ManyShape<E4m3, 128, false>>();

extern "C" __global__ void __launch_bounds__(ManyShape<E4m3, 192, false>::Threads, 1)
    sparrow_product_fp8_many192(const __grid_constant__ ProductArgs args) {
    multiply_many<ManyShape<E4m3, 192, false>>(args);
}
extern "C" __device__ const u32 sparrow_product_fp8_many192_shared = many_shared_bytes<ManyShape<E4m3, 192, false>>();

extern "C" __global__ void __launch_bounds__(ManyShape<E4m3, 128, true>::Threads, 1)
    sparrow_product_fp8_many128_parts(const __grid_constant__ ProductArgs args) {
    multiply_many<ManyShape<E4m3, 128, true>>(args);
}
extern "C" __device__ const u32 sparrow_product_fp8_many128_parts_shared =
    many_shared_bytes<ManyShape<E4m3, 128, true>>();

extern "C" __global__ void __launch_bounds__(ManyShape<E4m3, 192, true>::Threads, 1)
    sparrow_product_fp8_many192_parts(const __grid_constant__ ProductArgs args) {
    multiply_many<ManyShape<E4m3, 192, true>>(args);
}
extern "C" __device__ const u32 sparrow_product_fp8_many192_parts_shared =
    many_shared_bytes<ManyShape<E4m3, 192, true>>();
