// The kernel that assigns rows to tiles for dense attention.
#include "sm90/dense/plan.cuh"

extern "C" __global__ void __launch_bounds__(sparrow_dense::kPlanThreads,
    1) sparrow_dense_plan(const __grid_constant__ DenseAttendArgs args) {
    ptx::wait_for_previous_kernel();
    sparrow_dense::plan_tiles(args);
    ptx::release_next_kernel();
}
