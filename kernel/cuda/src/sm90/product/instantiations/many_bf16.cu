// Products of many rows in bf16.
#include "sm90/product/many.cuh"

namespace {
using namespace sparrow_product;
}  // namespace

extern "C" __global__ void __launch_bounds__(ManyShape<Bf16, 128, false>::Threads, 1)
    sparrow_product_bf16_many128(const __grid_constant__ ProductArgs args) {
    multiply_many<ManyShape<Bf16, 128, false>>(args);
}
extern "C" __device__ const u32 sparrow_product_bf16_many128_shared = many_shared_bytes<ManyShape<Bf16, 128, false>>();

extern "C" __global__ void __launch_bounds__(ManyShape<Bf16, 256, false>::Threads, 1)
    sparrow_product_bf16_many256(const __grid_constant__ ProductArgs args) {
    multiply_many<ManyShape<Bf16, 256, false>>(args);
}
extern "C" __device__ const u32 sparrow_product_bf16_many256_shared = many_shared_bytes<ManyShape<Bf16, 256, false>>();

extern "C" __global__ void __launch_bounds__(ManyShape<Bf16, 128, true>::Threads, 1)
    sparrow_product_bf16_many128_parts(const __grid_constant__ ProductArgs args) {
    multiply_many<ManyShape<Bf16, 128, true>>(args);
}
extern "C" __device__ const u32 sparrow_product_bf16_many128_parts_shared =
    many_shared_bytes<ManyShape<Bf16, 128, true>>();

extern "C" __global__ void __launch_bounds__(ManyShape<Bf16, 128, false, 2>::Threads, 2)
    sparrow_product_bf16_many128_twice(const __grid_constant__ ProductArgs args) {
    multiply_many<ManyShape<Bf16, 128, false, 2>>(args);
}
extern "C" __device__ const u32 sparrow_product_bf16_many128_twice_shared =
    many_shared_bytes<ManyShape<Bf16, 128, false, 2>>();
