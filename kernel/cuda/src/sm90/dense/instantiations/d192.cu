// Dense attention with queries of 128 + 64 columns (not rotated + rotated) and values of 128 columns.
#include "sm90/dense/kernel.cuh"

namespace {
using Shape = sparrow_dense::Shape<2, 2, 128, 1>;
}  // namespace

extern "C" __global__ void __launch_bounds__(sparrow_dense::kThreads,
    1) sparrow_dense_d192(const __grid_constant__ DenseAttendArgs args) {
    sparrow_dense::attend<Shape, 232, 40>(args);
}

// The dynamic shared memory of a launch, in bytes.
extern "C" __device__ const u32 sparrow_dense_d192_shared = sparrow_dense::shared_bytes<Shape>();
