// Top-k selection, portable kernel: one block per row.
#include "sm80/topk/topk.cuh"

extern "C" __global__ void __launch_bounds__(portable::kTopKThreads)
    portable_topk(const __grid_constant__ TopKArgs args) {
    for (i32 v = blockIdx.x; v < args.rows; v += gridDim.x) {
        portable::select_row(args, v);
        __syncthreads();
    }
}
