// Matrix products of one warp with operands in registers.
#pragma once

#include "ptx/types.h"

namespace ptx {

// Computes d [16, 8] += a [16, 16] * b [16, 8] in bf16. Lane l holds pairs of adjacent columns of a: in a[0] row l / 4,
// columns 2 (l % 4) and 2 (l % 4) + 1; in a[1] 8 rows below; in a[2] 8 columns to the right; in a[3] both. Of b [k, n]
// it holds pairs of k at (2 (l % 4), l / 4) in b0 and at k + 8 in b1. Of d it holds two columns of rows l / 4 and l / 4
// + 8. The result is bitwise equal to that of the warpgroup instruction; tests compare them.
__device__ __forceinline__ void multiply_16x8(float* d, const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace ptx
