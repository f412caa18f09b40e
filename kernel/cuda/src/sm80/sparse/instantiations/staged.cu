// Sparse attention over rows of codes with memory for rows as they are stored, portable kernels.
#include "sm80/sparse/nope.cuh"
#include "sm80/sparse/staged.cuh"

PORTABLE_STAGED(portable_sparse_block, portable::BlockRow)
PORTABLE_STAGED(portable_sparse_raw, portable::RawRow)
PORTABLE_STAGED(portable_sparse_entry, portable::EntryRow)
PORTABLE_STAGED(portable_sparse_nope, portable::NopeRow)
