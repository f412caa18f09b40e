// Packing of lattice types: the fields of all rows of a unit side by side (decode_lattice.cuh).
#pragma once

#include "sm90/packed/decode_lattice.cuh"
#include "sm90/packed/pack.cuh"

namespace sparrow_packed {

template <>
struct Packer<IQ2XXS> {
    static __device__ __forceinline__ void run(const PackPackedArgs& args, u8* to, i32 tile, i32 stripe, i32 first) {
#pragma unroll 1
        for (i32 i = threadIdx.x; i < IQ2XXS::Bytes; i += kPackThreads) {
            const i32 r = i < 4096 ? i / 8 % 64 : (i - 4096) / 2, at = i < 4096 ? 2 + i / 512 * 8 + i % 8 : i % 2;
            const u8* block = block_of(args, Row(args, tile, stripe * 64 + r), first, 66);
            to[i] = block == nullptr ? 0 : block[at];
        }
    }
};

template <>
struct Packer<IQ3XXS> {
    static __device__ __forceinline__ void run(const PackPackedArgs& args, u8* to, i32 tile, i32 stripe, i32 first) {
#pragma unroll 1
        for (i32 i = threadIdx.x; i < IQ3XXS::Bytes; i += kPackThreads) {
            i32 r, at;
            if (i < 4096) {
                r = i / 8 % 64, at = 2 + i / 512 * 8 + i % 8;
            } else if (i < 6144) {
                r = i / 4 % 64, at = 66 + (i - 4096) / 256 * 4 + i % 4;
            } else {
                r = (i - 6144) / 2, at = i % 2;
            }
            const u8* block = block_of(args, Row(args, tile, stripe * 64 + r), first, 98);
            to[i] = block == nullptr ? 0 : block[at];
        }
    }
};

}  // namespace sparrow_packed
