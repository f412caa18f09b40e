// Warpgroup matrix products of 16-bit floats with fp32 accumulators. Tiles in shared memory have rows of 128 bytes
// with the 128-byte swizzle.
//
// One instruction multiplies A [64, 16] by B [16, N] and adds the product to D [64, N]. It takes N/2 tensor clocks. D
// is distributed over the lanes as in wgmma.cuh. If A [64, 16] is in registers, lane l of warp w holds rows 16w + l/4
// (a[0], a[2]) and 16w + l/4 + 8 (a[1], a[3]). Of these rows it holds columns 2*(l%4) + {0, 1} (a[0], a[1]) and the
// columns 8 to the right (a[2], a[3]). Pairs of adjacent elements of D therefore become A without moving between
// lanes.
#pragma once

#include "ptx/types.h"

namespace ptx {

// Returns the descriptor of a tile [K][64] that is read as B [K, N]: the N dimension is contiguous, 64 elements in a
// row of 128 bytes. Tiles of 64 columns are tile_bytes apart; eight rows of K are 1024 bytes. Adding 128 to the
// descriptor moves it 16 rows along K.
__device__ __forceinline__ u64 operand_128b_across(u32 address, u32 tile_bytes) {
    constexpr u64 kSwizzle128 = 1ull << 62;
    constexpr u64 kEightRows = 1024ull >> 4;
    return kSwizzle128 | (kEightRows << 32) | (static_cast<u64>(tile_bytes >> 4) << 16) | static_cast<u64>(
        (address & 0x3FFFF) >> 4);
}

// Stores a fragment [16, 16] of a warp, held in the order of a register operand (a above). Lane l passes the address
// of 8 elements: row l % 16, from column 8 * (l / 16).
__device__ __forceinline__ void store_fragments(u32 address, const u32 (&a)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
        ::"r"(address), "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]) : "memory");
}

// Matrix products of bf16. If accumulate is 0, the product overwrites d.
struct Bf16 {
    // Computes d [64, 64] (+)= a * b over 16 columns of K, both K-major in shared memory.
    static __device__ __forceinline__ void multiply_64(float (&d)[32], u64 a, u64 b, i32 accumulate) {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "setp.ne.b32 p, %34, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
            "}, %32, %33, p, 1, 1, 0, 0;\n"
            "}\n"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
              "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
              "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
              "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
            : "l"(a), "l"(b), "r"(accumulate));
    }

    // Computes d [64, 64] (+)= a * b over 16 columns of K, with a in registers and b K-major in shared memory.
    static __device__ __forceinline__ void multiply_64(float (&d)[32], const u32 (&a)[4], u64 b, i32 accumulate) {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "setp.ne.b32 p, %37, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
            "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n"
            "}\n"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
              "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
              "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
              "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
    }

    // Computes d [64, 256] (+)= a * b over 16 rows of K, with a in registers and b as operand_128b_across describes.
    static __device__ __forceinline__ void multiply_256(float (&d)[128], const u32 (&a)[4], u64 b, i32 accumulate) {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "setp.ne.b32 p, %133, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
            "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
            "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
            "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
            "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
            "}, {%128, %129, %130, %131}, %132, p, 1, 1, 1;\n"
            "}\n"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
              "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
              "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
              "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
              "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
              "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
              "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
              "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
              "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
              "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
              "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
              "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
              "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]),
                  "+f"(d[103]),
              "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]),
                  "+f"(d[111]),
              "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]),
                  "+f"(d[119]),
              "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]),
                  "+f"(d[127])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
    }

    // Computes the 128 columns of d that are in d[From] to d[From + 63]: [64, 128] (+)= a * b over 16 rows of K, with a
    // K-major in shared memory and b as operand_128b_across describes. This is half of a product of 256 columns.
    // Kernels use it that launch with fewer than the 158 registers per thread that the compiler needs for the whole
    // product.
    template <int From>
    static __device__ __forceinline__ void multiply_128(float (&d)[128], u64 a, u64 b, i32 accumulate) {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "setp.ne.b32 p, %66, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
            "}, %64, %65, p, 1, 1, 0, 1;\n"
            "}\n"
            : "+f"(d[From + 0]), "+f"(d[From + 1]), "+f"(d[From + 2]), "+f"(d[From + 3]), "+f"(d[From + 4]),
              "+f"(d[From + 5]), "+f"(d[From + 6]), "+f"(d[From + 7]), "+f"(d[From + 8]), "+f"(d[From + 9]),
              "+f"(d[From + 10]), "+f"(d[From + 11]), "+f"(d[From + 12]), "+f"(d[From + 13]), "+f"(d[From + 14]),
              "+f"(d[From + 15]), "+f"(d[From + 16]), "+f"(d[From + 17]), "+f"(d[From + 18]), "+f"(d[From + 19]),
              "+f"(d[From + 20]), "+f"(d[From + 21]), "+f"(d[From + 22]), "+f"(d[From + 23]), "+f"(d[From + 24]),
              "+f"(d[From + 25]), "+f"(d[From + 26]), "+f"(d[From + 27]), "+f"(d[From + 28]), "+f"(d[From + 29]),
              "+f"(d[From + 30]), "+f"(d[From + 31]), "+f"(d[From + 32]), "+f"(d[From + 33]), "+f"(d[From + 34]),
              "+f"(d[From + 35]), "+f"(d[From + 36]), "+f"(d[From + 37]), "+f"(d[From + 38]), "+f"(d[From + 39]),
              "+f"(d[From + 40]), "+f"(d[From + 41]), "+f"(d[From + 42]), "+f"(d[From + 43]), "+f"(d[From + 44]),
              "+f"(d[From + 45]), "+f"(d[From + 46]), "+f"(d[From + 47]), "+f"(d[From + 48]), "+f"(d[From + 49]),
              "+f"(d[From + 50]), "+f"(d[From + 51]), "+f"(d[From + 52]), "+f"(d[From + 53]), "+f"(d[From + 54]),
              "+f"(d[From + 55]), "+f"(d[From + 56]), "+f"(d[From + 57]), "+f"(d[From + 58]), "+f"(d[From + 59]),
              "+f"(d[From + 60]), "+f"(d[From + 61]), "+f"(d[From + 62]), "+f"(d[From + 63])
            : "l"(a), "l"(b), "r"(accumulate));
    }

    // Packs two values, with low in the lower half of the word.
    static __device__ __forceinline__ u32 pack(float low, float high) {
        u32 r;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
        return r;
    }
};

// Matrix products of IEEE half precision. If accumulate is 0, the product overwrites d.
struct F16 {
    // Computes d [64, 64] (+)= a * b over 16 columns of K, both K-major in shared memory.
    static __device__ __forceinline__ void multiply_64(float (&d)[32], u64 a, u64 b, i32 accumulate) {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "setp.ne.b32 p, %34, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
            "}, %32, %33, p, 1, 1, 0, 0;\n"
            "}\n"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
              "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
              "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
              "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
            : "l"(a), "l"(b), "r"(accumulate));
    }

    // Computes d [64, 256] (+)= a * b over 16 rows of K, with a in registers and b as operand_128b_across describes.
    static __device__ __forceinline__ void multiply_256(float (&d)[128], const u32 (&a)[4], u64 b, i32 accumulate) {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "setp.ne.b32 p, %133, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
            "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
            "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
            "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
            "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
            "}, {%128, %129, %130, %131}, %132, p, 1, 1, 1;\n"
            "}\n"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
              "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
              "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
              "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
              "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
              "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
              "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
              "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
              "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
              "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
              "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
              "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
              "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]),
                  "+f"(d[103]),
              "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]),
                  "+f"(d[111]),
              "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]),
                  "+f"(d[119]),
              "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]),
                  "+f"(d[127])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
    }

    // Computes d [64, 256] (+)= a * b over 16 rows of K, with a K-major in shared memory and b as operand_128b_across
    // describes.
    static __device__ __forceinline__ void multiply_256(float (&d)[128], u64 a, u64 b, i32 accumulate) {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "setp.ne.b32 p, %130, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
            "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
            "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
            "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
            "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
            "}, %128, %129, p, 1, 1, 0, 1;\n"
            "}\n"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
              "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
              "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
              "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
              "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
              "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
              "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
              "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
              "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
              "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
              "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
              "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
              "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]),
                  "+f"(d[103]),
              "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]),
                  "+f"(d[111]),
              "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]),
                  "+f"(d[119]),
              "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]),
                  "+f"(d[127])
            : "l"(a), "l"(b), "r"(accumulate));
    }

    // Computes the 128 columns of d that are in d[From] to d[From + 63]: [64, 128] (+)= a * b over 16 rows of K, with a
    // K-major in shared memory and b as operand_128b_across describes.
    template <int From>
    static __device__ __forceinline__ void multiply_128(float (&d)[128], u64 a, u64 b, i32 accumulate) {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "setp.ne.b32 p, %66, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
            "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
            "}, %64, %65, p, 1, 1, 0, 1;\n"
            "}\n"
            : "+f"(d[From + 0]), "+f"(d[From + 1]), "+f"(d[From + 2]), "+f"(d[From + 3]), "+f"(d[From + 4]),
              "+f"(d[From + 5]), "+f"(d[From + 6]), "+f"(d[From + 7]), "+f"(d[From + 8]), "+f"(d[From + 9]),
              "+f"(d[From + 10]), "+f"(d[From + 11]), "+f"(d[From + 12]), "+f"(d[From + 13]), "+f"(d[From + 14]),
              "+f"(d[From + 15]), "+f"(d[From + 16]), "+f"(d[From + 17]), "+f"(d[From + 18]), "+f"(d[From + 19]),
              "+f"(d[From + 20]), "+f"(d[From + 21]), "+f"(d[From + 22]), "+f"(d[From + 23]), "+f"(d[From + 24]),
              "+f"(d[From + 25]), "+f"(d[From + 26]), "+f"(d[From + 27]), "+f"(d[From + 28]), "+f"(d[From + 29]),
              "+f"(d[From + 30]), "+f"(d[From + 31]), "+f"(d[From + 32]), "+f"(d[From + 33]), "+f"(d[From + 34]),
              "+f"(d[From + 35]), "+f"(d[From + 36]), "+f"(d[From + 37]), "+f"(d[From + 38]), "+f"(d[From + 39]),
              "+f"(d[From + 40]), "+f"(d[From + 41]), "+f"(d[From + 42]), "+f"(d[From + 43]), "+f"(d[From + 44]),
              "+f"(d[From + 45]), "+f"(d[From + 46]), "+f"(d[From + 47]), "+f"(d[From + 48]), "+f"(d[From + 49]),
              "+f"(d[From + 50]), "+f"(d[From + 51]), "+f"(d[From + 52]), "+f"(d[From + 53]), "+f"(d[From + 54]),
              "+f"(d[From + 55]), "+f"(d[From + 56]), "+f"(d[From + 57]), "+f"(d[From + 58]), "+f"(d[From + 59]),
              "+f"(d[From + 60]), "+f"(d[From + 61]), "+f"(d[From + 62]), "+f"(d[From + 63])
            : "l"(a), "l"(b), "r"(accumulate));
    }

    // Packs two values, with low in the lower half of the word. Values out of range become the largest finite value.
    static __device__ __forceinline__ u32 pack(float low, float high) {
        u32 r;
        asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
        return r;
    }
};

}  // namespace ptx
