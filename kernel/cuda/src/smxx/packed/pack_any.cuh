// Packs 4-bit integers with any scales and zero points, in groups of 128 columns or more (decode_any.cuh).
#pragma once

#include "smxx/packed/decode_any.cuh"
#include "smxx/packed/pack.cuh"

namespace sparrow_packed {

template <>
struct Packer<U4Any> {
    static __device__ __forceinline__ u32 code(const PackPackedArgs& args, const Row& row, i32 first, i32 column) {
        return row.code(args, first + column);
    }
    static __device__ __forceinline__ void run(const PackPackedArgs& args, u8* to, i32 tile, i32 stripe, i32 first) {
        pack_4<256, false, Packer>(args, to, tile, stripe, first);
        to += Codes4::CodeBytes;
#pragma unroll 1
        for (i32 i = threadIdx.x; i < 64 * 2; i += kPackThreads) {
            const Row row(args, tile, stripe * 64 + i / 2);
            const i32 column = first + i % 2 * 128;
            reinterpret_cast<f32*>(to)[i] = __fmul_rn(row.scale(args, column), i / 2 % 16 < 8 ? 0x1p103f : 0x1p99f);
            to[U4Any::ScaleBytes + i] = static_cast<u8>(row.zero(args, column));
        }
    }
};

}  // namespace sparrow_packed
