// Sparse attention for every row format, and the kernel that combines segments, portable kernels.
#include "sm80/sparse/sparse.cuh"

PORTABLE_SPARSE(portable_sparse_bf16, portable::Bf16Row<576>)
PORTABLE_SPARSE(portable_sparse_flat, portable::Bf16Row<512>)
PORTABLE_SPARSE(portable_sparse_block, portable::BlockRow)
PORTABLE_SPARSE(portable_sparse_raw, portable::RawRow)
PORTABLE_SPARSE(portable_sparse_entry, portable::EntryRow)

extern "C" __global__ void __launch_bounds__(portable::kCombineThreads)
    portable_sparse_combine_f16(const __grid_constant__ SparseAttendArgs args) {
    portable::combine_segments<true>(args);
}
extern "C" __global__ void __launch_bounds__(portable::kCombineThreads)
    portable_sparse_combine_f32(const __grid_constant__ SparseAttendArgs args) {
    portable::combine_segments<false>(args);
}
