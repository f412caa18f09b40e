// Combines the segments of sparse attention.
#include "sm90/sparse/combine.cuh"

// For selected rows of bf16: partial results in fp32.
extern "C" __global__ void __launch_bounds__(sparrow_sparse::kCombineThreads) sparrow_sparse_combine_f32(
    const __grid_constant__ SparseAttendArgs args) {
    sparrow_sparse::combine<ptx::Bf16>(args);
}

// For all other formats of selected rows: partial results in half precision.
extern "C" __global__ void __launch_bounds__(sparrow_sparse::kCombineThreads) sparrow_sparse_combine_f16(
    const __grid_constant__ SparseAttendArgs args) {
    sparrow_sparse::combine<ptx::F16>(args);
}
