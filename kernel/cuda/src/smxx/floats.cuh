// Access to elements of tensors whose type is known only at run time.
#pragma once
#include "smxx/num.cuh"

// Further bits of the fault word (base.h).
constexpr u32 kFaultRow = 8;     // a row number outside its table
constexpr u32 kFaultExpert = 16; // an expert id outside the experts

// Type codes in argument structs, with the numbers of ElementType in Go.
constexpr i32 kF32 = 0;
constexpr i32 kBF16 = 1;
constexpr i32 kF16 = 2;

DEVICE f32 read_float(const void* base, i64 at, i32 type) {
    if (type == kF32) return static_cast<const f32*>(base)[at];
    u16 h = static_cast<const u16*>(base)[at];
    if (type == kBF16) return bf16_low(h);
    f32 v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(h));
    return v;
}

// Writes v as element `at` of a tensor of f32 or bf16.
DEVICE void write_float(void* base, i64 at, i32 type, f32 v) {
    if (type == kF32)
        static_cast<f32*>(base)[at] = v;
    else
        static_cast<u16*>(base)[at] = static_cast<u16>(bf16_bits(v));
}
DEVICE i32 element_bytes(i32 type) { return type == kF32 ? 4 : 2; }

// Unpacks eight bf16 values from 16 bytes.
DEVICE void unpack_8(uint4 v, f32 (&out)[8]) {
    u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        out[2 * i] = bf16_low(w[i]);
        out[2 * i + 1] = bf16_high(w[i]);
    }
}
DEVICE uint4 pack_8(const f32 (&v)[8]) {
    return make_uint4(pack_bf16_fast(v[0], v[1]), pack_bf16_fast(v[2], v[3]), pack_bf16_fast(v[4], v[5]),
                      pack_bf16_fast(v[6], v[7]));
}
DEVICE bool aligned_16(const void* base, i64 stride_bytes) {
    return ((reinterpret_cast<u64>(base) | static_cast<u64>(stride_bytes)) & 15) == 0;
}
