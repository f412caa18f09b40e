// Warpgroup matrix products of bf16 with operand a in registers. a [64, 16] is distributed over the lanes as in
// wgmma_half.cuh; b [N, 16] is K-major in shared memory with the 128-byte swizzle. The registers of a must not change
// before the wait that covers the product.
#pragma once

#include "ptx/wgmma.cuh"

namespace ptx {

// Held<N>::run computes d [64, N] (+)= a * b transposed. If accumulate is 0, it overwrites d.
template <int N>
struct Held;

#define PTX_R0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define PTX_R8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define PTX_R16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PTX_R32                                                                              \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, " \
    "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PTX_R64                                                                              \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, " \
    "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define PTX_R96                                                                                      \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define PTX_D8(i)                                                                                                  \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define PTX_D16(i) PTX_D8(i), PTX_D8(i + 8)
#define PTX_D32(i) PTX_D16(i), PTX_D16(i + 16)
#define PTX_D64(i) PTX_D32(i), PTX_D32(i + 32)

#define PTX_HELD(N, Shape, Names, A, B, P, ...)                                                                       \
    template <>                                                                                                       \
    struct Held<N> {                                                                                                  \
        static __device__ __forceinline__ void run(float (&d)[N / 2], const u32 (&a)[4], u64 b, i32 accumulate) {     \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\nwgmma.mma_async.sync.aligned." Shape            \
                         "k16.f32.bf16.bf16 {" Names "}, {" A "}, " B ", p, 1, 1, 0;\n}\n"                            \
                         : __VA_ARGS__                                                                                \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                      \
        }                                                                                                             \
    };

PTX_HELD(16, "m64n16", PTX_R0, "%8, %9, %10, %11", "%12", "%13", PTX_D8(0))
PTX_HELD(64, "m64n64", PTX_R0 PTX_R8 PTX_R16, "%32, %33, %34, %35", "%36", "%37", PTX_D32(0))
PTX_HELD(128, "m64n128", PTX_R0 PTX_R8 PTX_R16 PTX_R32, "%64, %65, %66, %67", "%68", "%69", PTX_D64(0))
PTX_HELD(256, "m64n256", PTX_R0 PTX_R8 PTX_R16 PTX_R32 PTX_R64 PTX_R96, "%128, %129, %130, %131", "%132", "%133",
         PTX_D64(0), PTX_D64(64))

#undef PTX_HELD
#undef PTX_D64
#undef PTX_D32
#undef PTX_D16
#undef PTX_D8
#undef PTX_R96
#undef PTX_R64
#undef PTX_R32
#undef PTX_R16
#undef PTX_R8
#undef PTX_R0

}  // namespace ptx
