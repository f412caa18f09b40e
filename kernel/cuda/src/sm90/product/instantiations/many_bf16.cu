// Matrix products of many rows in bf16.
#include "sm90/product/many.cuh"

namespace {
using namespace sparrow_product;
using Many128 = ManyShape<Bf16, 128, 1, false>;
using Many256 = ManyShape<Bf16, 256, 1, false>;
using Many64Parts = ManyShape<Bf16, 64, 1, true>;
using Many128Parts = ManyShape<Bf16, 128, 1, true>;
}  // namespace

extern "C" __global__ void __launch_bounds__(Many128::Threads, 1)
    sparrow_product_bf16_many128(const __grid_constant__ ProductArgs args) {
    multiply_many<Many128>(args);
}
extern "C" __device__ const u32 sparrow_product_bf16_many128_shared = many_shared_bytes<Many128>();

extern "C" __global__ void __launch_bounds__(Many256::Threads, 1)
    sparrow_product_bf16_many256(const __grid_constant__ ProductArgs args) {
    multiply_many<Many256>(args);
}
extern "C" __device__ const u32 sparrow_product_bf16_many256_shared = many_shared_bytes<Many256>();

extern "C" __global__ void __launch_bounds__(Many64Parts::Threads, 1)
    sparrow_product_bf16_many64_parts(const __grid_constant__ ProductArgs args) {
    multiply_many<Many64Parts>(args);
}
extern "C" __device__ const u32 sparrow_product_bf16_many64_parts_shared = many_shared_bytes<Many64Parts>();

extern "C" __global__ void __launch_bounds__(Many128Parts::Threads, 1)
    sparrow_product_bf16_many128_parts(const __grid_constant__ ProductArgs args) {
    multiply_many<Many128Parts>(args);
}
extern "C" __device__ const u32 sparrow_product_bf16_many128_parts_shared = many_shared_bytes<Many128Parts>();
