// Packs the lattice types and IQ4 (decode_lattice.cuh).
#pragma once

#include "smxx/packed/decode_lattice.cuh"
#include "smxx/packed/pack.cuh"

namespace sparrow_packed {

// Returns eight signs from seven stored signs. The eighth sign is such that the number of negative values is even.
__device__ __forceinline__ u32 eight_signs(u32 seven) {
    seven &= 127u;
    return seven | (__popc(seven) & 1u) << 7;
}
__device__ __forceinline__ u32 word_at(const u8* at) {
    return at[0] | at[1] << 8 | at[2] << 16 | static_cast<u32>(at[3]) << 24;
}
__device__ __forceinline__ u32 nibble_at(const u8* at, i32 i) { return at[i / 2] >> (4 * (i % 2)) & 15u; }

// A block of 256 values in the file format, which starts with d. Its functions return the index of point j of an octet,
// the signs of an octet, and scale i.
template <class F>
struct Block;

template <>
struct Block<IQ2XXS> {
    static constexpr i32 kBytes = 66;
    static __device__ __forceinline__ u32 index(const u8* b, i32 octet, i32) {
        return b[2 + octet / 4 * 8 + octet % 4];
    }
    static __device__ __forceinline__ u32 signs(const u8* b, i32 octet) {
        return eight_signs(word_at(b + 6 + octet / 4 * 8) >> (7 * (octet % 4)));
    }
    static __device__ __forceinline__ u32 scale(const u8* b, i32 i) { return b[9 + i * 8] >> 4; }
};
template <>
struct Block<IQ2XS> {
    static constexpr i32 kBytes = 74;
    static __device__ __forceinline__ u32 index(const u8* b, i32 octet, i32) {
        return b[2 + 2 * octet] | (b[3 + 2 * octet] & 1u) << 8;
    }
    static __device__ __forceinline__ u32 signs(const u8* b, i32 octet) { return eight_signs(b[3 + 2 * octet] >> 1); }
    static __device__ __forceinline__ u32 scale(const u8* b, i32 i) { return nibble_at(b + 66, i); }
};
template <>
struct Block<IQ2S> {
    static constexpr i32 kBytes = 82;
    static __device__ __forceinline__ u32 index(const u8* b, i32 octet, i32) {
        return b[2 + octet] | (b[66 + octet / 4] >> (2 * (octet % 4)) & 3u) << 8;
    }
    static __device__ __forceinline__ u32 signs(const u8* b, i32 octet) { return b[34 + octet]; }
    static __device__ __forceinline__ u32 scale(const u8* b, i32 i) { return nibble_at(b + 74, i); }
};
template <>
struct Block<IQ3XXS> {
    static constexpr i32 kBytes = 98;
    static __device__ __forceinline__ u32 index(const u8* b, i32 octet, i32 point) { return b[2 + octet * 2 + point]; }
    static __device__ __forceinline__ u32 signs(const u8* b, i32 octet) {
        return eight_signs(word_at(b + 66 + octet / 4 * 4) >> (7 * (octet % 4)));
    }
    static __device__ __forceinline__ u32 scale(const u8* b, i32 i) { return b[69 + i * 4] >> 4; }
};
template <>
struct Block<IQ3S> {
    static constexpr i32 kBytes = 110;
    static __device__ __forceinline__ u32 index(const u8* b, i32 octet, i32 point) {
        const i32 i = octet * 2 + point;
        return b[2 + i] | (b[66 + i / 8] >> (i % 8) & 1u) << 8;
    }
    static __device__ __forceinline__ u32 signs(const u8* b, i32 octet) { return b[74 + octet]; }
    static __device__ __forceinline__ u32 scale(const u8* b, i32 i) { return nibble_at(b + 106, i); }
};

template <class F>
struct LatticePacker {
    using B = Block<F>;

    static __device__ __forceinline__ void run(const PackPackedArgs& args, u8* to, i32 tile, i32 stripe, i32 first) {
#pragma unroll 1
        for (u32 i = threadIdx.x; i < 512; i += kPackThreads) {  // [warp][batch][lane]
            const u32 warp = i / 128, batch = i / 32 % 4, lane = i % 32;
            u32 points[2] = {}, upper = 0, word = 0;
            for (int p = 0; p < 4; ++p) {
                const Row row(args, tile, stripe * 64 + row_of(warp, lane, p % 2));
                const u8* block = block_of(args, row, first, B::kBytes);
                if (block == nullptr) {
                    continue;
                }
                const i32 octet = 8 * batch + 2 * (lane % 4) + p / 2;
                for (int j = 0; j < F::Points; ++j) {
                    const int n = p * F::Points + j;
                    const u32 index = B::index(block, octet, j);
                    points[n / 4] |= (index & 255u) << (8 * (n % 4));
                    upper |= index >> 8 << (2 * p + j);
                }
                const u32 s = B::signs(block, octet);
                for (int j = 0; j < 8; ++j) {
                    word |= (s >> j & 1u) << (2 * p + j / 4 + 8 * (j % 4));
                }
            }
            const u32 at = (warp * 32 + lane) * 4 + batch;
            for (int j = 0; j < F::Points; ++j) {
                const u32 half = warp * 256 + batch / 2 * 128 + lane * 4 + batch % 2 * 2 + j;
                reinterpret_cast<u32*>(to)[F::Points == 1 ? at : half] = points[j];
            }
            if (F::Upper) {
                to[F::UpperAt + at] = static_cast<u8>(upper);
            }
            reinterpret_cast<u32*>(to + F::SignsAt)[at] = word;
        }
        if (threadIdx.x < 64) {
            const Row row(args, tile, stripe * 64 + threadIdx.x);
            const u8* block = block_of(args, row, first, B::kBytes);
            for (int i = 0; i < F::ScaleBytes; ++i) {
                to[F::ScalesAt + threadIdx.x * F::ScaleBytes + i] = static_cast<u8>(
                    block == nullptr ? 0u : B::scale(block, 2 * i) | B::scale(block, 2 * i + 1) << 4);
            }
            const f32 d = block == nullptr ? 0.0f : __fmul_rn(read_float(block, 0, kF16), F::Eighths * 0x1p106f);
            reinterpret_cast<u32*>(to + F::PairAt)[threadIdx.x] =
                bf16_bits(d) | bf16_bits(__fsub_rn(d, round_bf16(d))) << 16;
        }
    }
};
template <>
struct Packer<IQ2XXS> : LatticePacker<IQ2XXS> {};
template <>
struct Packer<IQ2XS> : LatticePacker<IQ2XS> {};
template <>
struct Packer<IQ2S> : LatticePacker<IQ2S> {};
template <>
struct Packer<IQ3XXS> : LatticePacker<IQ3XXS> {};
template <>
struct Packer<IQ3S> : LatticePacker<IQ3S> {};

// IQ4_XS has blocks of 256 values; IQ4_NL is stored like Q4_0.
template <>
struct Packer<IQ4> {
    // Bytes: d, 16 bits of upper bit pairs of scales, 4 bytes of lower nibbles of scales, codes.
    static constexpr i32 kBytes = 136;

    static __device__ __forceinline__ u32 code(const PackPackedArgs& args, const Row& row, i32 column) {
        if (args.source != kBlocks) {
            return row.code(args, column);
        }
        const u8* block = block_of(args, row, column, kBytes);
        return block == nullptr ? 0u : block[8 + column % 256 / 32 * 16 + column % 16] >> (column % 32 / 16 * 4) & 15u;
    }
    static __device__ __forceinline__ f32 scale(const PackPackedArgs& args, const Row& row, i32 column) {
        if (args.source != kBlocks) {
            return row.scale(args, column);
        }
        const u8* block = block_of(args, row, column, kBytes);
        if (block == nullptr) {
            return 0;
        }
        const i32 g = column % 256 / 32;
        const u32 bits = nibble_at(block + 4, g) | (block[2 + g / 4] >> (2 * (g % 4)) & 3u) << 4;
        return __fmul_rn(read_float(block, 0, kF16), static_cast<f32>(static_cast<i32>(bits) - 32));
    }
    static __device__ __forceinline__ void run(const PackPackedArgs& args, u8* to, i32 tile, i32 stripe, i32 first) {
#pragma unroll 1
        for (u32 i = threadIdx.x; i < 2048; i += kPackThreads) {  // [warp][batch][lane][step]
            const u32 warp = i / 512, step = i / 128 % 4 * 4 + i % 4, lane = i / 4 % 32;
            u32 word = 0;
            for (int j = 0; j < 4; ++j) {
                const Row row(args, tile, stripe * 64 + row_of(warp, lane, j));
                for (int half = 0; half < 2; ++half) {
                    word |= code(args, row, first + column_of<false>(step, lane, j, half)) << (8 * j + 4 * half);
                }
            }
            reinterpret_cast<u32*>(to)[i] = word;
        }
#pragma unroll 1
        for (i32 i = threadIdx.x; i < 64 * 8; i += kPackThreads) {
            const Row row(args, tile, stripe * 64 + i / 8);
            reinterpret_cast<u16*>(to + Codes4::CodeBytes)[i] =
                static_cast<u16>(bf16_bits(scale(args, row, first + i % 8 * 32)));
        }
    }
};

}  // namespace sparrow_packed
