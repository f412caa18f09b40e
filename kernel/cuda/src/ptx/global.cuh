// Vectors of 16 bytes between registers and global memory.
#pragma once

#include "ptx/types.h"

namespace ptx {

// Memory that this thread alone writes and reads soon after: kept in L2, not in the first-level cache.
__device__ __forceinline__ float4 load_own(const float4* src) {
    float4 v;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(src)
                 : "memory");
    return v;
}

__device__ __forceinline__ void store_own(float4* dst, float4 v) {
    asm volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(dst), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
                 : "memory");
}

// Results that this kernel does not read: they leave L2 early.
__device__ __forceinline__ void store_once(void* dst, uint4 v) {
    asm volatile("st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(dst), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

}  // namespace ptx
