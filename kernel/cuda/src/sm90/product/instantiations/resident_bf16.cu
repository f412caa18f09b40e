// Matrix products of many rows in bf16 with weights that stay in shared memory.
#include "sm90/product/resident.cuh"

extern "C" __global__ void __launch_bounds__(sparrow_product::kResidentThreads, 1)
    sparrow_product_bf16_resident(const __grid_constant__ ProductArgs args) {
    sparrow_product::multiply_resident(args);
}
extern "C" __device__ const u32 sparrow_product_bf16_resident_shared = sparrow_product::kResidentBytes;
