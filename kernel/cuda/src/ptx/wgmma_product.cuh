// Warpgroup matrix products for dense layers. Both operands are K-major in shared memory with the 128-byte swizzle
// (operand_128b). The float32 accumulators are distributed over the lanes as in wgmma.cuh. One instruction takes 32
// bytes of K, which are 32 columns of e4m3 or 16 columns of bf16.
#pragma once

#include "ptx/wgmma.cuh"

namespace ptx {

struct E4m3Pair {};  // both operands e4m3
struct Bf16Pair {};  // both operands bf16

// Product<Pair, N>::run computes d [64, N] (+)= a [64, 32 bytes] * b [N, 32 bytes]. If accumulate is 0, it overwrites
// d.
template <class Pair, int N>
struct Product;

// The operand names of the accumulators in the instruction, four at a time, and the accumulators themselves.
#define PTX_R0 "%0, %1, %2, %3"
#define PTX_R4 ", %4, %5, %6, %7"
#define PTX_R8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define PTX_R16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PTX_R32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define PTX_R48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PTX_R64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define PTX_R80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define PTX_R80_8 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define PTX_R96                                                                                      \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define PTX_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define PTX_D8(i) PTX_D4(i), PTX_D4(i + 4)
#define PTX_D16(i) PTX_D8(i), PTX_D8(i + 8)
#define PTX_D32(i) PTX_D16(i), PTX_D16(i + 16)
#define PTX_D64(i) PTX_D32(i), PTX_D32(i + 32)

// Defines one specialisation. A, B and P are the names of the operands after the accumulators. Tail ends the
// instruction: it holds the signs and, for bf16, the flags that select no transposition.
#define PTX_PRODUCT(Pair, N, Shape, Names, A, B, P, Tail, ...)                                                        \
    template <>                                                                                                       \
    struct Product<Pair, N> {                                                                                         \
        static __device__ __forceinline__ void run(float (&d)[N / 2], u64 a, u64 b, i32 accumulate) {                 \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\nwgmma.mma_async.sync.aligned." Shape " {" Names \
                         "}, " A ", " B ", p, " Tail ";\n}\n"                                                         \
                         : __VA_ARGS__                                                                                \
                         : "l"(a), "l"(b), "r"(accumulate));                                                          \
        }                                                                                                             \
    };
#define PTX_PRODUCTS(Pair, K, Types, Tail)                                                                           \
    PTX_PRODUCT(Pair, 8, "m64n8k" K ".f32." Types, PTX_R0, "%4", "%5", "%6", Tail, PTX_D4(0))                        \
    PTX_PRODUCT(Pair, 16, "m64n16k" K ".f32." Types, PTX_R0 PTX_R4, "%8", "%9", "%10", Tail, PTX_D8(0))              \
    PTX_PRODUCT(Pair, 32, "m64n32k" K ".f32." Types, PTX_R0 PTX_R4 PTX_R8, "%16", "%17", "%18", Tail, PTX_D16(0))    \
    PTX_PRODUCT(Pair, 64, "m64n64k" K ".f32." Types, PTX_R0 PTX_R4 PTX_R8 PTX_R16, "%32", "%33", "%34", Tail,        \
                PTX_D32(0))                                                                                          \
    PTX_PRODUCT(Pair, 128, "m64n128k" K ".f32." Types, PTX_R0 PTX_R4 PTX_R8 PTX_R16 PTX_R32 PTX_R48, "%64", "%65",   \
                "%66", Tail, PTX_D64(0))                                                                             \
    PTX_PRODUCT(Pair, 192, "m64n192k" K ".f32." Types, PTX_R0 PTX_R4 PTX_R8 PTX_R16 PTX_R32 PTX_R48 PTX_R64 PTX_R80, \
                "%96", "%97", "%98", Tail, PTX_D64(0), PTX_D32(64))                                                  \
    PTX_PRODUCT(Pair, 256, "m64n256k" K ".f32." Types,                                                               \
                PTX_R0 PTX_R4 PTX_R8 PTX_R16 PTX_R32 PTX_R48 PTX_R64 PTX_R80 PTX_R96, "%128", "%129", "%130", Tail,  \
                PTX_D64(0), PTX_D64(64))

PTX_PRODUCTS(E4m3Pair, "32", "e4m3.e4m3", "1, 1")
PTX_PRODUCTS(Bf16Pair, "16", "bf16.bf16", "1, 1, 0, 0")
PTX_PRODUCT(E4m3Pair, 176, "m64n176k32.f32.e4m3.e4m3",
            PTX_R0 PTX_R4 PTX_R8 PTX_R16 PTX_R32 PTX_R48 PTX_R64 PTX_R80_8, "%88", "%89", "%90", "1, 1", PTX_D64(0),
            PTX_D16(64), PTX_D8(80))

// HeldProduct<N>::run computes d [64, N] (+)= a [64, 32] * b [N, 32] in e4m3, with a in registers. Lane l of warp w
// holds rows 16w + l/4 (a[0], a[2]) and 16w + l/4 + 8 (a[1], a[3]). Of these rows it holds the four columns from 4
// (l%4) in a[0] and a[1], and the four columns from 16 + 4 (l%4) in a[2] and a[3].
template <int N>
struct HeldProduct;

#define PTX_HELD(N, Shape, Names, A, B, P, ...)                                                                       \
    template <>                                                                                                       \
    struct HeldProduct<N> {                                                                                           \
        static __device__ __forceinline__ void run(float (&d)[N / 2], const u32 (&a)[4], u64 b, i32 accumulate) {     \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\nwgmma.mma_async.sync.aligned." Shape " {" Names \
                         "}, {" A "}, " B ", p, 1, 1;\n}\n"                                                           \
                         : __VA_ARGS__                                                                                \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                      \
        }                                                                                                             \
    };
PTX_HELD(16, "m64n16k32.f32.e4m3.e4m3", PTX_R0 PTX_R4, "%8, %9, %10, %11", "%12", "%13", PTX_D8(0))
PTX_HELD(32, "m64n32k32.f32.e4m3.e4m3", PTX_R0 PTX_R4 PTX_R8, "%16, %17, %18, %19", "%20", "%21", PTX_D16(0))
PTX_HELD(64, "m64n64k32.f32.e4m3.e4m3", PTX_R0 PTX_R4 PTX_R8 PTX_R16, "%32, %33, %34, %35", "%36", "%37", PTX_D32(0))

#undef PTX_HELD
#undef PTX_PRODUCTS
#undef PTX_PRODUCT
#undef PTX_D64
#undef PTX_D32
#undef PTX_D16
#undef PTX_D8
#undef PTX_D4
#undef PTX_R96
#undef PTX_R80_8
#undef PTX_R80
#undef PTX_R64
#undef PTX_R48
#undef PTX_R32
#undef PTX_R16
#undef PTX_R8
#undef PTX_R4
#undef PTX_R0

}  // namespace ptx
