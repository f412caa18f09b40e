// Products of 128 and 64 columns, b across K: parts of a product of 256 columns (wgmma_half.cuh), for
// kernels that launch with too few registers for the whole, of which the compiler wants 158 a thread.
#pragma once

#include "ptx/wgmma_half.cuh"

namespace ptx {

// d [64, 2 * N] (+)= a * b over 16 rows of K, columns [2 * From, 2 * From + 128) alone: a K-major, b across K
// (operand_128b_across), both in shared memory. accumulate 0 overwrites d.
template <int From, int N>
__device__ __forceinline__ void multiply_f16_128(float (&d)[N], u64 a, u64 b, i32 accumulate) {
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
            "+f"(d[From + 5]), "+f"(d[From + 6]), "+f"(d[From + 7]),
          "+f"(d[From + 8]), "+f"(d[From + 9]), "+f"(d[From + 10]), "+f"(d[From + 11]), "+f"(d[From + 12]),
              "+f"(d[From + 13]), "+f"(d[From + 14]), "+f"(d[From + 15]),
          "+f"(d[From + 16]), "+f"(d[From + 17]), "+f"(d[From + 18]), "+f"(d[From + 19]), "+f"(d[From + 20]),
              "+f"(d[From + 21]), "+f"(d[From + 22]), "+f"(d[From + 23]),
          "+f"(d[From + 24]), "+f"(d[From + 25]), "+f"(d[From + 26]), "+f"(d[From + 27]), "+f"(d[From + 28]),
              "+f"(d[From + 29]), "+f"(d[From + 30]), "+f"(d[From + 31]),
          "+f"(d[From + 32]), "+f"(d[From + 33]), "+f"(d[From + 34]), "+f"(d[From + 35]), "+f"(d[From + 36]),
              "+f"(d[From + 37]), "+f"(d[From + 38]), "+f"(d[From + 39]),
          "+f"(d[From + 40]), "+f"(d[From + 41]), "+f"(d[From + 42]), "+f"(d[From + 43]), "+f"(d[From + 44]),
              "+f"(d[From + 45]), "+f"(d[From + 46]), "+f"(d[From + 47]),
          "+f"(d[From + 48]), "+f"(d[From + 49]), "+f"(d[From + 50]), "+f"(d[From + 51]), "+f"(d[From + 52]),
              "+f"(d[From + 53]), "+f"(d[From + 54]), "+f"(d[From + 55]),
          "+f"(d[From + 56]), "+f"(d[From + 57]), "+f"(d[From + 58]), "+f"(d[From + 59]), "+f"(d[From + 60]),
              "+f"(d[From + 61]), "+f"(d[From + 62]), "+f"(d[From + 63])
        : "l"(a), "l"(b), "r"(accumulate));
}

// d [64, 64] (+)= a * b, the same; the first argument says of what type.
__device__ __forceinline__ void multiply_64_across(F16, float (&d)[32], u64 a, u64 b, i32 accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, %32, %33, p, 1, 1, 0, 1;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "r"(accumulate));
}

__device__ __forceinline__ void multiply_64_across(Bf16, float (&d)[32], u64 a, u64 b, i32 accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, %32, %33, p, 1, 1, 0, 1;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "r"(accumulate));
}

}  // namespace ptx
