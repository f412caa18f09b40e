// Loads and stores of 16 bytes between registers and global memory.
#pragma once

#include "ptx/types.h"

namespace ptx {

// Loads 16 bytes from memory that only this thread writes and reads. The data is cached in L2, not in L1.
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

// Stores results that this kernel does not read again, so they are evicted first from L2.
__device__ __forceinline__ void store_once(void* dst, uint4 v) {
    asm volatile("st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(dst), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

}  // namespace ptx
