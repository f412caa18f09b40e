// Loads matrix fragments from shared memory into registers.
#pragma once

#include "ptx/types.h"

namespace ptx {

// Loads four matrices [8 rows][16 bytes]. Lane l passes the address of row l % 8 of matrix l / 8. It receives in r[i]
// word l % 4 of row l / 4 of matrix i.
__device__ __forceinline__ void load_matrices(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

// Loads four matrices as load_matrices does, each transposed in units of two bytes: lane l receives in r[i] the 16-bit
// elements at column l / 4 of rows 2 (l % 4) and 2 (l % 4) + 1 of matrix i.
__device__ __forceinline__ void load_matrices_across(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

}  // namespace ptx
