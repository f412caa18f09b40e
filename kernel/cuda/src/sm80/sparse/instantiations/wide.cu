// Sparse attention with 64 heads in a block, portable kernels.
#include "sm80/sparse/nope.cuh"

PORTABLE_WIDE(portable_sparse_bf16, portable::Bf16Row<576>)
PORTABLE_WIDE(portable_sparse_flat, portable::Bf16Row<512>)
PORTABLE_WIDE(portable_sparse_block, portable::BlockRow)
PORTABLE_WIDE(portable_sparse_raw, portable::RawRow)
PORTABLE_WIDE(portable_sparse_entry, portable::EntryRow)
PORTABLE_WIDE(portable_sparse_nope, portable::NopeRow)
