// Warpgroup matrix products with A in registers and B K-major in shared memory (operand_128b), 64 columns, float32
// accumulators spread over the lanes as in wgmma.cuh. One instruction takes 32 bytes of K: 32 columns of e4m3 or 16
// of bf16.
//
// A [64, 32 bytes]: lane l of warp w holds of rows 16w + l/4 (a[0], a[2]) and 16w + l/4 + 8 (a[1], a[3]) the bytes
// 4*(l%4) and following (a[0], a[1]) and those plus 16 (a[2], a[3]), which is what load_matrices gives. The registers
// must not change before the product is done.
#pragma once

#include "ptx/wgmma_product.cuh"

namespace ptx {

// RowProduct<Pair>::run: d [64, 64] (+)= a * b [64, 32 bytes] transposed; accumulate 0 overwrites d.
template <class Pair>
struct RowProduct;

template <>
struct RowProduct<E4m3Pair> {
    static __device__ __forceinline__ void run(float (&d)[32], const u32 (&a)[4], u64 b, i32 accumulate) {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "setp.ne.b32 p, %37, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {"
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
            "}, {%32, %33, %34, %35}, %36, p, 1, 1;\n"
            "}\n"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
              "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
              "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
              "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
    }
};

}  // namespace ptx
