// Transposes a small matrix in the registers of a warp.
#pragma once

#include "ptx/types.h"

namespace ptx {

// Transposes a matrix [8, 8] of 16-bit elements. Lane l passes columns 2 (l % 4) and 2 (l % 4) + 1 of row l / 4, and
// receives the same elements of the transposed matrix.
__device__ __forceinline__ u32 turn_matrix(u32 pair) {
    u32 r;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(pair));
    return r;
}

}  // namespace ptx
