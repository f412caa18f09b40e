// Warpgroup matrix products of 16-bit floats with operand a in registers. a [64, 16] is distributed over the lanes as
// in wgmma_half.cuh. The registers of a must not change before the wait that covers the product.
#pragma once

#include "ptx/wgmma.cuh"

namespace ptx {

// Turned<N> computes d [64, N] (+)= a * b. If accumulate is 0, it overwrites d. half (half precision) and bf16 take b
// [N, 16] K-major; across (half precision) takes b as operand_128b_across describes and reads its first N columns.
template <int N>
struct Turned;

#define PTX_N8 "%0, %1, %2, %3"
#define PTX_D4 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define PTX_R0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define PTX_R8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define PTX_R16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PTX_D8(i)                                                                                                  \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define PTX_D16(i) PTX_D8(i), PTX_D8(i + 8)
#define PTX_D32(i) PTX_D16(i), PTX_D16(i + 16)

#define PTX_TURNED_RUN(Name, N, Shape, Types, Across, Names, A, B, P, ...)                                            \
    static __device__ __forceinline__ void Name(float (&d)[N / 2], const u32 (&a)[4], u64 b, i32 accumulate) {        \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\nwgmma.mma_async.sync.aligned." Shape "k16.f32."     \
                     Types " {" Names "}, {" A "}, " B ", p, 1, 1, " Across ";\n}\n"                                  \
                     : __VA_ARGS__                                                                                    \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                          \
    }
#define PTX_TURNED(N, Shape, Names, A, B, P, ...)                                             \
    template <>                                                                               \
    struct Turned<N> {                                                                        \
        PTX_TURNED_RUN(half, N, Shape, "f16.f16", "0", Names, A, B, P, __VA_ARGS__)           \
        PTX_TURNED_RUN(bf16, N, Shape, "bf16.bf16", "0", Names, A, B, P, __VA_ARGS__)         \
        PTX_TURNED_RUN(across, N, Shape, "f16.f16", "1", Names, A, B, P, __VA_ARGS__)         \
    };

PTX_TURNED(8, "m64n8", PTX_N8, "%4, %5, %6, %7", "%8", "%9", PTX_D4)
PTX_TURNED(16, "m64n16", PTX_R0, "%8, %9, %10, %11", "%12", "%13", PTX_D8(0))
PTX_TURNED(32, "m64n32", PTX_R0 PTX_R8, "%16, %17, %18, %19", "%20", "%21", PTX_D16(0))
PTX_TURNED(64, "m64n64", PTX_R0 PTX_R8 PTX_R16, "%32, %33, %34, %35", "%36", "%37", PTX_D32(0))

#undef PTX_TURNED
#undef PTX_TURNED_RUN
#undef PTX_D32
#undef PTX_D16
#undef PTX_D8
#undef PTX_R16
#undef PTX_R8
#undef PTX_R0
#undef PTX_D4
#undef PTX_N8

}  // namespace ptx
