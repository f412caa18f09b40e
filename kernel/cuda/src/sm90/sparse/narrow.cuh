// Products of half precision with 128 columns, for kernels that launch with fewer than the 158 registers per thread
// that the compiler needs for 256 columns.
#pragma once

#include "ptx/wgmma_half.cuh"

namespace sparrow_sparse {

// Computes the 128 columns of d that are in d[From] to d[From + 63]: [64, 128] (+)= a * b over 16 rows of K, with a in
// registers (wgmma_half.cuh) and b as operand_128b_across describes.
template <int From>
__device__ __forceinline__ void multiply_narrow(float (&d)[128], const u32 (&a)[4], u64 b, i32 accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n"
        "}\n"
        : "+f"(d[From + 0]), "+f"(d[From + 1]), "+f"(d[From + 2]), "+f"(d[From + 3]),
          "+f"(d[From + 4]), "+f"(d[From + 5]), "+f"(d[From + 6]), "+f"(d[From + 7]),
          "+f"(d[From + 8]), "+f"(d[From + 9]), "+f"(d[From + 10]), "+f"(d[From + 11]),
          "+f"(d[From + 12]), "+f"(d[From + 13]), "+f"(d[From + 14]), "+f"(d[From + 15]),
          "+f"(d[From + 16]), "+f"(d[From + 17]), "+f"(d[From + 18]), "+f"(d[From + 19]),
          "+f"(d[From + 20]), "+f"(d[From + 21]), "+f"(d[From + 22]), "+f"(d[From + 23]),
          "+f"(d[From + 24]), "+f"(d[From + 25]), "+f"(d[From + 26]), "+f"(d[From + 27]),
          "+f"(d[From + 28]), "+f"(d[From + 29]), "+f"(d[From + 30]), "+f"(d[From + 31]),
          "+f"(d[From + 32]), "+f"(d[From + 33]), "+f"(d[From + 34]), "+f"(d[From + 35]),
          "+f"(d[From + 36]), "+f"(d[From + 37]), "+f"(d[From + 38]), "+f"(d[From + 39]),
          "+f"(d[From + 40]), "+f"(d[From + 41]), "+f"(d[From + 42]), "+f"(d[From + 43]),
          "+f"(d[From + 44]), "+f"(d[From + 45]), "+f"(d[From + 46]), "+f"(d[From + 47]),
          "+f"(d[From + 48]), "+f"(d[From + 49]), "+f"(d[From + 50]), "+f"(d[From + 51]),
          "+f"(d[From + 52]), "+f"(d[From + 53]), "+f"(d[From + 54]), "+f"(d[From + 55]),
          "+f"(d[From + 56]), "+f"(d[From + 57]), "+f"(d[From + 58]), "+f"(d[From + 59]),
          "+f"(d[From + 60]), "+f"(d[From + 61]), "+f"(d[From + 62]), "+f"(d[From + 63])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

// As above, with a K-major in shared memory.
template <int From>
__device__ __forceinline__ void multiply_narrow(float (&d)[128], const u64& a, u64 b, i32 accumulate) {
    ptx::F16::multiply_128<From>(d, a, b, accumulate);
}

}  // namespace sparrow_sparse
