// Matrix unit instructions of Ampere and later, copies to shared memory, and the layout of operands in shared memory,
// for the portable kernels.
//
// A block of an operand is a number of rows of 128 bytes of k. The 16-byte piece c of row r is stored at piece c ^ (r %
// 8). Lane l of a warp reads pieces 2 (l % 4) and 2 (l % 4) + 1 of a row. A matrix instruction takes 16 columns of k,
// and a lane holds four of them. Any four columns can be used, if both operands use the same ones. One piece serves two
// instructions with 8 bytes per lane for 16-bit operands, and four instructions with 4 bytes per lane for e4m3.
// Therefore no values are exchanged between lanes, every read of shared memory is 16 bytes wide, and the lanes of a
// quarter warp have no bank conflicts.
//
// Bits: the sum of an element over k adds blocks in order, and steps of a block in order, in every tile shape, kernel
// and batch.
#pragma once

#include "ptx/types.h"
#include "ptx/warp.cuh"

namespace portable {

constexpr u32 kBlockBytes = 128;  // bytes of k per row of an operand in a stage

__device__ __forceinline__ u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// Computes d [16, 8] += a [16, 16] * b [8, 16] transposed. The registers of a alternate between rows l / 4 and l / 4
// + 8; b holds row l / 4; d holds rows l / 4 (elements 0, 1) and l / 4 + 8 (elements 2, 3), columns 2 (l % 4) and 2
// (l % 4) + 1.
__device__ __forceinline__ void multiply_f16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void multiply_bf16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Copies 16 bytes from global to shared memory. If valid is false, writes zeros and does not read src.
__device__ __forceinline__ void copy_16(u32 dst, const void* src, bool valid) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(valid ? 16 : 0)
                 : "memory");
}
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

__device__ __forceinline__ uint4 load_shared(u32 address) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}
__device__ __forceinline__ void store_shared(u32 address, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

// Loads four matrices [8 rows][16 bytes] from shared memory. Lane l passes the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
// Loads four matrices as load_matrices does, with each matrix transposed.
__device__ __forceinline__ void load_turned(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ u32 swizzled(u32 row, u32 piece) { return row * kBlockBytes + ((piece ^ (row & 7)) << 4); }

// Loads piece 2 * quad + half of a row of a block, for the lanes with l % 4 = quad.
__device__ __forceinline__ uint4 piece_at(u32 block, u32 row, u32 quad, u32 half) {
    return load_shared(block + swizzled(row, 2 * quad + half));
}
__device__ __forceinline__ u32 word_of(const uint4& v, int i) {  // i is a constant once loops are unrolled
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Conversion of e4m3 codes to half precision, times kCodeFactor; it is exact. Compute capability 8.9 has an
// instruction that converts two codes. Older devices shift the bits: the exponent biases differ by 8, and subnormal
// codes become subnormal halves. kCodeUp removes the factors of both operands from a product.
#if __CUDA_ARCH__ >= 890
constexpr float kCodeFactor = 1.0f, kCodeUp = 1.0f;

// Converts four codes to two pairs of halves, in order. NaN codes are converted to NaN.
__device__ __forceinline__ void widen_codes(u32 codes, u32& first, u32& second) {
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h; }"
        : "=r"(first), "=r"(second) : "r"(codes));
}
#else
constexpr float kCodeFactor = 1.0f / 256.0f, kCodeUp = 65536.0f;

__device__ __forceinline__ void widen_codes(u32 codes, u32& first, u32& second) {
    const u32 a = __byte_perm(codes, 0, 0x1404), b = __byte_perm(codes, 0, 0x3424);  // each code above a zero byte
    first = (a & 0x80008000u) | (a >> 1 & 0x3F803F80u);
    second = (b & 0x80008000u) | (b >> 1 & 0x3F803F80u);
    if ((((codes & 0x7F7F7F7Fu) + 0x01010101u) & 0x80808080u) != 0) {  // rare: some code is a NaN
        const u32 nan = ((codes & 0x7F7F7F7Fu) + 0x01010101u) & 0x80808080u;
        first |= (nan & 0x80u ? 0x7E00u : 0u) | (nan & 0x8000u ? 0x7E000000u : 0u);
        second |= (nan & 0x800000u ? 0x7E00u : 0u) | (nan & 0x80000000u ? 0x7E000000u : 0u);
    }
}
#endif

// Operand types. Step s of a piece gives two words of each row, each a pair of columns of k.
struct Codes {  // e4m3 codes, widened to halves
    static constexpr bool Scaled = true;
    static constexpr int Bytes = 1, Steps = 4;  // Steps: products per piece
    static __device__ __forceinline__ void words(const uint4& piece, int step, u32& first, u32& second) {
        widen_codes(word_of(piece, step), first, second);
    }
    static __device__ __forceinline__ void multiply(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
        multiply_f16(d, a, b);
    }
};
struct Bf16 {
    static constexpr bool Scaled = false;
    static constexpr int Bytes = 2, Steps = 2;
    static __device__ __forceinline__ void words(const uint4& piece, int step, u32& first, u32& second) {
        first = word_of(piece, 2 * step);
        second = word_of(piece, 2 * step + 1);
    }
    static __device__ __forceinline__ void multiply(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
        multiply_bf16(d, a, b);
    }
};

}  // namespace portable
