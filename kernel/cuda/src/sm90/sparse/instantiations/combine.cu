// Joins the segments of sparse attention.
#include "sm90/sparse/combine.cuh"

extern "C" __global__ void __launch_bounds__(sparrow_sparse::kCombineThreads) sparrow_sparse_combine(const __grid_constant__ SparseAttendArgs args) {
    sparrow_sparse::combine(args);
}
