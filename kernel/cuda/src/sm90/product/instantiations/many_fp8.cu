// Matrix products of many rows in e4m3.
#include "sm90/product/many.cuh"

namespace {
using namespace sparrow_product;
using Many128 = ManyShape<E4m3, 128, 1, false>;
using Many192 = ManyShape<E4m3, 192, 1, false>;
using Many256 = ManyShape<E4m3, 128, 2, false>;  // 256 rows by 128 columns
using Many256Parts = ManyShape<E4m3, 128, 2, true>;
using Many128Parts = ManyShape<E4m3, 128, 1, true>;
using Many176Parts = ManyShape<E4m3, 176, 1, true>;
}  // namespace

extern "C" __global__ void __launch_bounds__(Many128::Threads, 1)
    sparrow_product_fp8_many128(const __grid_constant__ ProductArgs args) {
    multiply_many<Many128>(args);
}
extern "C" __device__ const u32 sparrow_product_fp8_many128_shared = many_shared_bytes<Many128>();

extern "C" __global__ void __launch_bounds__(Many192::Threads, 1)
    sparrow_product_fp8_many192(const __grid_constant__ ProductArgs args) {
    multiply_many<Many192>(args);
}
extern "C" __device__ const u32 sparrow_product_fp8_many192_shared = many_shared_bytes<Many192>();

extern "C" __global__ void __launch_bounds__(Many256::Threads, 1)
    sparrow_product_fp8_many256(const __grid_constant__ ProductArgs args) {
    multiply_many<Many256>(args);
}
extern "C" __device__ const u32 sparrow_product_fp8_many256_shared = many_shared_bytes<Many256>();

extern "C" __global__ void __launch_bounds__(Many128Parts::Threads, 1)
    sparrow_product_fp8_many128_parts(const __grid_constant__ ProductArgs args) {
    multiply_many<Many128Parts>(args);
}
extern "C" __device__ const u32 sparrow_product_fp8_many128_parts_shared = many_shared_bytes<Many128Parts>();

extern "C" __global__ void __launch_bounds__(Many176Parts::Threads, 1)
    sparrow_product_fp8_many176_parts(const __grid_constant__ ProductArgs args) {
    multiply_many<Many176Parts>(args);
}
extern "C" __device__ const u32 sparrow_product_fp8_many176_parts_shared = many_shared_bytes<Many176Parts>();

extern "C" __global__ void __launch_bounds__(Many256Parts::Threads, 1)
    sparrow_product_fp8_many256_parts(const __grid_constant__ ProductArgs args) {
    multiply_many<Many256Parts>(args);
}
extern "C" __device__ const u32 sparrow_product_fp8_many256_parts_shared = many_shared_bytes<Many256Parts>();
