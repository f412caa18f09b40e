// Dense attention with queries of 192 + 64 columns (not rotated + rotated) and values of 256 columns.
#include "sm90/dense/kernel.cuh"

namespace {
using Shape = sparrow_dense::Shape<3, 4, 64, 1>;
}  // namespace

extern "C" __global__ void __launch_bounds__(sparrow_dense::kThreads,
    1) sparrow_dense_d256(const __grid_constant__ DenseAttendArgs args) {
    sparrow_dense::attend<Shape, 232, 40>(args);
}

// The dynamic shared memory of a launch, in bytes.
extern "C" __device__ const u32 sparrow_dense_d256_shared = sparrow_dense::shared_bytes<Shape>();
