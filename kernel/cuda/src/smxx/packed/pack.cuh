// Packs weights into the units that decode.cuh describes. This runs once, when the weights are loaded. A matrix has
// tiles of 256 rows. Gate and up are packed into the same tiles: of every 16 tile rows, the first eight are rows of
// gate and the other eight are the corresponding rows of up, so that a lane has both values of an output column. Rows
// and columns beyond the matrix are zeros.
//
// Block: 256 threads, for the four stripes of a unit.
// Bytes: the matrix is read once and written once.
#pragma once

#include "smxx/packed/args.h"
#include "smxx/packed/decode.cuh"
#include "smxx/floats.cuh"

namespace sparrow_packed {

// Storage formats of the codes.
enum Source {
    kNibbles = 0,  // two values of a row in a byte, the first in the lower half
    kBytes = 1,
    kOffset = 2,  // signed bytes; 128 is added to them when they are packed
    kQ4_0 = 3,    // blocks of GGUF files: 18 bytes for 32 values, an f16 scale, then low and high nibbles
    kQ8_0 = 4,    // 34 bytes for 32 values, an f16 scale in front
    kMXFP4 = 5,   // 17 bytes for 32 values, an e8m0 scale, then low and high nibbles
    kBlocks = 6,  // blocks of 256 values, which the Packer of the format reads
};

// Scale types in addition to the types of floats.cuh.
constexpr i32 kScaleE4m3 = 3, kScaleE8m0 = 4;

constexpr int kTileRows = 256, kPackThreads = 256;

// A row of a tile in the storage format.
struct Row {
    const u8* codes;
    const u8* scales;
    const u8* zeros;
    i64 scale_row;
    bool inside;

    __device__ __forceinline__ Row(const PackPackedArgs& args, i32 tile, i32 r) {
        const bool two = args.second != nullptr, second = two && r % 16 >= 8;
        const i64 row = two ? tile * 128 + r / 16 * 8 + r % 8 : static_cast<i64>(tile) * kTileRows + r;
        inside = row < args.rows;
        codes = (second ? args.second : args.first) + (inside ? row : 0) * args.stride;
        scales = second ? args.second_scales : args.first_scales;
        zeros = second ? args.second_zeros : args.first_zeros;
        scale_row = inside ? (row + args.skip_rows) / args.block_rows : 0;
    }
    __device__ __forceinline__ u32 code(const PackPackedArgs& args, i32 column) const {
        if (!inside || column >= args.columns) {
            return 0;
        }
        switch (args.source) {
        case kNibbles:
            return codes[column / 2] >> (column % 2 * 4) & 15;
        case kQ4_0:
            return codes[column / 32 * 18 + 2 + column % 16] >> (column % 32 / 16 * 4) & 15;
        case kMXFP4:
            return codes[column / 32 * 17 + 1 + column % 16] >> (column % 32 / 16 * 4) & 15;
        case kQ8_0:
            return codes[column / 32 * 34 + 2 + column % 32] ^ 0x80u;
        }
        return args.source == kOffset ? codes[column] ^ 0x80u : codes[column];
    }
    __device__ __forceinline__ i64 scale_at(const PackPackedArgs& args, i32 column) const {
        return scale_row * args.scale_stride + column / args.block_columns;
    }
    // Returns the byte of an e4m3 or e8m0 scale.
    __device__ __forceinline__ u32 scale_byte(const PackPackedArgs& args, i32 column) const {
        if (!inside || column >= args.columns) {
            return 0;
        }
        return args.source == kMXFP4 ? codes[column / 32 * 17] : scales[scale_at(args, column)];
    }
    __device__ __forceinline__ f32 scale(const PackPackedArgs& args, i32 column) const {
        if (!inside || column >= args.columns) {
            return 0;
        }
        if (args.source == kQ4_0 || args.source == kQ8_0) {
            return read_float(codes + column / 32 * (args.source == kQ4_0 ? 18 : 34), 0, kF16);
        }
        const i64 at = scale_at(args, column);
        if (args.scale_type == kScaleE8m0) {
            const u32 e = scales[at];
            return __uint_as_float(e == 0 ? 1u << 22 : e << 23);
        }
        return read_float(scales, at, args.scale_type);
    }
    __device__ __forceinline__ u32 zero(const PackPackedArgs& args, i32 column) const {
        if (!inside || column >= args.columns || zeros == nullptr) {
            return args.middle;
        }
        return zeros[scale_at(args, column)];
    }
};

// Return, within the stripe, the row of word a[j] of a lane, and the column of value `half` of the word.
__device__ __forceinline__ i32 row_of(u32 warp, u32 lane, int j) { return 16 * warp + lane / 4 + 8 * (j & 1); }
template <bool Turned>
__device__ __forceinline__ i32 column_of(u32 step, u32 lane, int j, int half) {
    return Turned ? step / 4 * 64 + lane % 4 * 16 + step % 4 * 4 + (j >> 1) * 2 + half
                  : 16 * step + 2 * (lane % 4) + half + 8 * (j >> 1);
}

// Returns the bits of an e2m1 code at their positions in a word (e2m1_pair).
__device__ __forceinline__ u32 e2m1_bits(u32 code, int j, int half) {
    const u32 sign = code >> 3, rest = code & 7;
    u32 bits;
    switch (j) {
    case 0:
        bits = rest << 6 | sign << 15;
        break;
    case 1:
        bits = rest << 10 | sign << 19;
        break;
    case 2:
        bits = rest | sign << 9;
        break;
    default:
        bits = (rest & 3) << 4 | rest >> 2 << 14 | sign << 13;
    }
    return half == 0 ? bits : __funnelshift_l(bits, bits, 16);
}

// Packs the 4-bit codes of a stripe; Packer::code(args, row, first column, column) returns a code.
template <int K, bool E2m1, class Packer>
__device__ __forceinline__ void pack_4(const PackPackedArgs& args, u8* to, i32 tile, i32 stripe, i32 first) {
#pragma unroll 1
    for (u32 i = threadIdx.x; i < 8 * K; i += kPackThreads) {  // [warp][batch][lane][step]
        const u32 warp = i / (2 * K), step = i / 128 % (K / 64) * 4 + i % 4, lane = i / 4 % 32;
        u32 word = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const Row row(args, tile, stripe * 64 + row_of(warp, lane, j));
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const u32 c = Packer::code(args, row, first, column_of<false>(step, lane, j, half));
                word |= E2m1 ? e2m1_bits(c, j, half) : c << (4 * j + 16 * half);
            }
        }
        reinterpret_cast<u32*>(to)[i] = word;
    }
}

__device__ __forceinline__ void pack_8(const PackPackedArgs& args, u8* to, i32 tile, i32 stripe, i32 first) {
#pragma unroll 1
    for (u32 i = threadIdx.x; i < 2048; i += kPackThreads) {  // [warp][batch][half][lane][step][2]
        const u32 warp = i / 512, step = i / 256 % 2 * 4 + i / 128 % 2 * 2 + i / 2 % 2, lane = i / 4 % 32, h = i % 2;
        u32 word = 0;
        for (int low = 0; low < 2; ++low) {
            const int j = 2 * h + low;
            const Row row(args, tile, stripe * 64 + row_of(warp, lane, j));
            for (int half = 0; half < 2; ++half) {
                word |= row.code(args, first + column_of<false>(step, lane, j, half)) << (8 * low + 16 * half);
            }
        }
        reinterpret_cast<u32*>(to)[i] = word;
    }
}

// Packs the scales of groups, times one power of two for the upper eight and another for the lower eight of 16 rows.
template <class S, int Groups, bool General>
__device__ __forceinline__ void pack_groups(const PackPackedArgs& args, u8* to, i32 tile, i32 stripe, i32 first,
                                            f32 upper, f32 lower) {
#pragma unroll 1
    for (i32 i = threadIdx.x; i < 64 * S::Each; i += kPackThreads) {
        const i32 r = i / S::Each;
        const Row row(args, tile, stripe * 64 + r);
        const i32 column = first + i % S::Each * (128 / Groups);
        const f32 scale = __fmul_rn(row.scale(args, column), r % 16 < 8 ? upper : lower);
        if constexpr (General) {
            const f32 high = round_bf16(scale);
            reinterpret_cast<u32*>(to)[i] = bf16_bits(high) | bf16_bits(__fsub_rn(scale, high)) << 16;
            to[S::ScaleBytes + i] = static_cast<u8>(row.zero(args, column));
        } else {
            reinterpret_cast<u16*>(to)[i] = static_cast<u16>(bf16_bits(scale));
        }
    }
}

template <class F>
struct Packer;

template <>
struct Packer<Nvfp4> {
    // Returns a code whose sign is inverted if the scale is negative, because stored scales are positive and not zero.
    static __device__ __forceinline__ u32 code(const PackPackedArgs& args, const Row& row, i32 first, i32 column) {
        const u32 scale = row.scale_byte(args, first + column);
        return (scale & 0x7F) == 0 ? 0u : row.code(args, first + column) ^ scale >> 7 << 3;
    }
    // Returns a scale as it is stored (decode.cuh).
    static __device__ __forceinline__ u32 stored(u32 e4m3) {
        const u32 exponent = e4m3 >> 3 & 15, fraction = e4m3 & 7;
        if (exponent > 0) {
            return (exponent - 7 + Nvfp4::kBias) << 3 | fraction;
        }
        const u32 up = __clz(fraction | 1) - 28;  // shifts the highest bit of the fraction to bit 3
        return (Nvfp4::kBias - 6 - up) << 3 | (fraction << up & 7);
    }
    static __device__ __forceinline__ void run(const PackPackedArgs& args, u8* to, i32 tile, i32 stripe, i32 first) {
        pack_4<256, true, Packer>(args, to, tile, stripe, first);
#pragma unroll 1
        for (i32 i = threadIdx.x; i < 64 * 16; i += kPackThreads) {
            const Row row(args, tile, stripe * 64 + i / 16);
            to[Codes4::CodeBytes + i] = static_cast<u8>(stored(row.scale_byte(args, first + i % 16 * 16)));
        }
    }
};

template <>
struct Packer<Mxfp4> {
    static __device__ __forceinline__ u32 code(const PackPackedArgs& args, const Row& row, i32 first, i32 column) {
        return row.code(args, first + column);
    }
    static __device__ __forceinline__ void run(const PackPackedArgs& args, u8* to, i32 tile, i32 stripe, i32 first) {
        pack_4<256, true, Packer>(args, to, tile, stripe, first);
#pragma unroll 1
        for (i32 i = threadIdx.x; i < 64 * 8; i += kPackThreads) {
            const Row row(args, tile, stripe * 64 + i / 8);
            to[Codes4::CodeBytes + i] =
                static_cast<u8>(min(row.scale_byte(args, first + i % 8 * 32) + 126u - Mxfp4::Exponent, 255u));
        }
    }
};

template <int Groups, bool General>
struct Packer<U4<Groups, General>> {
    static __device__ __forceinline__ u32 code(const PackPackedArgs& args, const Row& row, i32 first, i32 column) {
        return row.code(args, first + column);
    }
    static __device__ __forceinline__ void run(const PackPackedArgs& args, u8* to, i32 tile, i32 stripe, i32 first) {
        pack_4<256, false, Packer>(args, to, tile, stripe, first);
        pack_groups<typename U4<Groups, General>::Scales, Groups, General>(
            args, to + Codes4::CodeBytes, tile, stripe, first, 0x1p103f, 0x1p99f);
    }
};

template <int Groups, bool General>
struct Packer<I8<Groups, General>> {
    static __device__ __forceinline__ void run(const PackPackedArgs& args, u8* to, i32 tile, i32 stripe, i32 first) {
        pack_8(args, to, tile, stripe, first);
        pack_groups<typename I8<Groups, General>::Scales, Groups, General>(
            args, to + Codes8::CodeBytes, tile, stripe, first, 0x1p103f, 0x1p103f);
    }
};

template <int Groups, bool General>
struct Packer<E4m3<Groups, General>> {
    static __device__ __forceinline__ void run(const PackPackedArgs& args, u8* to, i32 tile, i32 stripe, i32 first) {
        pack_8(args, to, tile, stripe, first);
        pack_groups<typename E4m3<Groups, General>::Scales, Groups, General>(
            args, to + Codes8::CodeBytes, tile, stripe, first, 0x1p100f, 0x1p100f);  // 2^(120 - Exponent)
    }
};

// Returns the block of 256 values of a row, or null.
__device__ __forceinline__ const u8* block_of(const PackPackedArgs& args, const Row& row, i32 first, i32 bytes) {
    return row.inside && first < args.columns ? row.codes + first / 256 * bytes : nullptr;
}

// Packs two bits of each code in words of two steps, [warp][batch][half][lane]; Packer::two(args, row, first column,
// column) returns the two bits of a code.
template <class Packer>
__device__ __forceinline__ void pack_2(const PackPackedArgs& args, u8* to, i32 tile, i32 stripe, i32 first) {
#pragma unroll 1
    for (u32 i = threadIdx.x; i < 1024; i += kPackThreads) {
        const u32 warp = i / 256, lane = i % 32;
        u32 word = 0;
#pragma unroll 1
        for (int p = 0; p < 8; ++p) {
            const u32 step = i / 32 % 8 * 2 + p / 4;
            const Row row(args, tile, stripe * 64 + row_of(warp, lane, p % 4));
            for (int half = 0; half < 2; ++half) {
                word |= Packer::two(args, row, first, column_of<false>(step, lane, p % 4, half)) << (2 * p + 16 * half);
            }
        }
        reinterpret_cast<u32*>(to)[i] = word;
    }
}

// Packs one bit of each code in words of a batch, [warp][batch][lane]; Packer::bit(args, row, first column, column)
// returns the bit of a code.
template <class Packer>
__device__ __forceinline__ void pack_1(const PackPackedArgs& args, u8* to, i32 tile, i32 stripe, i32 first) {
#pragma unroll 1
    for (u32 i = threadIdx.x; i < 512; i += kPackThreads) {
        const u32 warp = i / 128, lane = i % 32;
        u32 word = 0;
#pragma unroll 1
        for (int p = 0; p < 16; ++p) {
            const u32 step = i / 32 % 4 * 4 + p / 4;
            const Row row(args, tile, stripe * 64 + row_of(warp, lane, p % 4));
            for (int half = 0; half < 2; ++half) {
                word |= Packer::bit(args, row, first, column_of<false>(step, lane, p % 4, half)) << (p + 16 * half);
            }
        }
        reinterpret_cast<u32*>(to)[i] = word;
    }
}

// Packs the scales of groups of 16, times 2^103; Packer::scale(block, group) returns a scale.
template <class Packer>
__device__ __forceinline__ void pack_scales16(const PackPackedArgs& args, u8* to, i32 tile, i32 stripe, i32 first) {
#pragma unroll 1
    for (i32 i = threadIdx.x; i < 64 * 16; i += kPackThreads) {
        const u8* block = block_of(args, Row(args, tile, stripe * 64 + i / 16), first, Packer::kBytes);
        const f32 scale = block == nullptr ? 0.0f : __fmul_rn(Packer::scale(block, i % 16), 0x1p103f);
        reinterpret_cast<u16*>(to)[i] = static_cast<u16>(bf16_bits(scale));
    }
}

template <bool Five>
struct Packer<Q45K<Five>> {
    static constexpr i32 kBytes = Five ? 176 : 144, kCodes = Five ? 48 : 16;

    static __device__ __forceinline__ u32 code(const PackPackedArgs& args, const Row& row, i32 first, i32 c) {
        const u8* block = block_of(args, row, first, kBytes);
        return block == nullptr ? 0u : block[kCodes + c / 64 * 32 + c % 32] >> (c / 32 % 2 * 4) & 15u;
    }
    static __device__ __forceinline__ u32 bit(const PackPackedArgs& args, const Row& row, i32 first, i32 c) {
        const u8* block = block_of(args, row, first, kBytes);
        return block == nullptr ? 0u : block[16 + c % 32] >> (c / 32) & 1u;
    }

    static __device__ __forceinline__ void run(const PackPackedArgs& args, u8* to, i32 tile, i32 stripe, i32 first) {
        pack_4<256, false, Packer>(args, to, tile, stripe, first);
        if constexpr (Five) {
            pack_1<Packer>(args, to + Q5K::FifthAt, tile, stripe, first);
        }
        if (threadIdx.x < 64) {
            const Row row(args, tile, stripe * 64 + threadIdx.x);
            const u8* block = block_of(args, row, first, kBytes);
            u32 words[4] = {};
            for (int g = 0; block != nullptr && g < 8; ++g) {
                const u8* q = block + 4;
                const u32 s = g < 4 ? q[g] & 63u : (q[g + 4] & 15u) | (q[g - 4] >> 6 << 4);
                const u32 m = g < 4 ? q[g + 4] & 63u : q[g + 4] >> 4 | (q[g] >> 6 << 4);
                words[1 + g / 4] |= (s & 15u) << (4 * (g % 4)) | (m & 15u) << (16 + 4 * (g % 4));
                words[3] |= (s >> 4 << (2 * (g % 4)) | m >> 4 << (8 + 2 * (g % 4))) << (16 * (g / 4));
            }
            if (block != nullptr) {
                words[0] = block[0] | block[1] << 8 | block[2] << 16 | block[3] << 24;
            }
            *reinterpret_cast<uint4*>(to + Q4K::Codes::CodeBytes + threadIdx.x * 16) =
                make_uint4(words[0], words[1], words[2], words[3]);
        }
    }
};

template <>
struct Packer<Q6K> {
    static constexpr i32 kBytes = 210;  // bytes: 128 of lower bits of codes, 64 of upper bits, 16 signed scales, d

    static __device__ __forceinline__ u32 code(const PackPackedArgs& args, const Row& row, i32 first, i32 c) {
        const u8* block = block_of(args, row, first, kBytes);
        return block == nullptr ? 0u : block[c / 128 * 64 + c % 64] >> (c / 64 % 2 * 4) & 15u;
    }
    static __device__ __forceinline__ u32 two(const PackPackedArgs& args, const Row& row, i32 first, i32 c) {
        const u8* block = block_of(args, row, first, kBytes);
        return block == nullptr ? 0u : block[128 + c / 128 * 32 + c % 32] >> (c / 32 % 4 * 2) & 3u;
    }
    static __device__ __forceinline__ f32 scale(const u8* block, i32 i) {
        return __fmul_rn(read_float(block + 208, 0, kF16), static_cast<f32>(static_cast<signed char>(block[192 + i])));
    }
    static __device__ __forceinline__ void run(const PackPackedArgs& args, u8* to, i32 tile, i32 stripe, i32 first) {
        pack_4<256, false, Packer>(args, to, tile, stripe, first);
        pack_2<Packer>(args, to + Q6K::UpperAt, tile, stripe, first);
        pack_scales16<Packer>(args, to + Q6K::ScalesAt, tile, stripe, first);
    }
};

template <>
struct Packer<Q3K> {
    static constexpr i32 kBytes = 110;  // bytes: 32 of third bits of codes, 64 of lower bits, 12 of scales, d

    static __device__ __forceinline__ u32 two(const PackPackedArgs& args, const Row& row, i32 first, i32 c) {
        const u8* block = block_of(args, row, first, kBytes);
        return block == nullptr ? 0u : block[32 + c / 128 * 32 + c % 32] >> (c / 32 % 4 * 2) & 3u;
    }
    static __device__ __forceinline__ u32 bit(const PackPackedArgs& args, const Row& row, i32 first, i32 c) {
        const u8* block = block_of(args, row, first, kBytes);
        return block == nullptr ? 0u : block[c % 32] >> (c / 32) & 1u;
    }
    static __device__ __forceinline__ f32 scale(const u8* block, i32 i) {
        const u8* q = block + 96;
        const u32 bits = (q[i % 8] >> (4 * (i / 8)) & 15u) | (q[8 + i % 4] >> (2 * (i / 4)) & 3u) << 4;
        return __fmul_rn(read_float(block + 108, 0, kF16), static_cast<f32>(static_cast<i32>(bits) - 32));
    }
    static __device__ __forceinline__ void run(const PackPackedArgs& args, u8* to, i32 tile, i32 stripe, i32 first) {
#pragma unroll 1
        for (u32 i = threadIdx.x; i < 1536; i += kPackThreads) {  // [warp][half of the unit][lane][batch][3]
            const u32 warp = i / 384, half = i / 192 % 2, lane = i / 6 % 32, b = i / 3 % 2, k = i % 3;
            u32 word = 0;
            for (u32 at = 5 * k; at < 5 * k + 6; ++at) {  // five pairs, and a bit of the last one
                const bool last = at == 5 * k + 5;
                const u32 n = last ? 15 : static_cast<u32>(Q3K::kPairAt >> (4 * at)) & 15u;
                const int j = n % 2 * 2 + n / 8;
                const Row row(args, tile, stripe * 64 + row_of(warp, lane, j));
                for (int value = 0; value < 2; ++value) {
                    const i32 c = column_of<true>((2 * half + b) * 4 + n % 8 / 2, lane, j, value);
                    const u32 code = two(args, row, first, c) | bit(args, row, first, c) << 2;
                    word |= (last ? (code >> k & 1u) << 15 : code << (3 * (at - 5 * k))) << (16 * value);
                }
            }
            const u32 n = 3 * b + k;
            reinterpret_cast<u32*>(to)[warp * 384 + half * 192 + (n < 4 ? lane * 4 + n : 124 + lane * 2 + n)] = word;
        }
#pragma unroll 1
        for (i32 i = threadIdx.x; i < 64 * 16; i += kPackThreads) {  // [row][4][batch]
            const u8* block = block_of(args, Row(args, tile, stripe * 64 + i / 16), first, kBytes);
            const f32 v = block == nullptr ? 0.0f : scale(block, i % 4 * 4 + i / 4 % 4);
            reinterpret_cast<u16*>(to + Q3K::ScalesAt)[i] =
                static_cast<u16>(bf16_bits(__fmul_rn(v, i / 16 % 16 < 8 ? 0x1p103f : 0x1p100f)));
        }
    }
};

template <>
struct Packer<Q2K> {
    static constexpr i32 kBytes = 84;  // bytes: 16 of scales, 64 of codes, d, dmin

    static __device__ __forceinline__ void run(const PackPackedArgs& args, u8* to, i32 tile, i32 stripe, i32 first) {
#pragma unroll 1
        for (u32 i = threadIdx.x; i < 1024; i += kPackThreads) {  // [warp][half][lane][batch][2]
            const u32 warp = i / 256, lane = i / 4 % 32;
            u32 word = 0;
            for (int p = 0; p < 8; ++p) {
                const u32 step = i / 128 % 2 * 8 + i / 2 % 2 * 4 + i % 2 * 2 + p / 4;
                const Row row(args, tile, stripe * 64 + row_of(warp, lane, p % 4));
                const u8* block = block_of(args, row, first, kBytes);
                for (int half = 0; block != nullptr && half < 2; ++half) {
                    const i32 c = column_of<true>(step, lane, p % 4, half);
                    word |= (block[16 + c / 128 * 32 + c % 32] >> (c / 32 % 4 * 2) & 3u) << (2 * p + 16 * half);
                }
            }
            reinterpret_cast<u32*>(to)[i] = word;
        }
        if (threadIdx.x < 64) {
            const u8* block = block_of(args, Row(args, tile, stripe * 64 + threadIdx.x), first, kBytes);
            u32 words[6] = {};
            for (int g = 0; block != nullptr && g < 16; ++g) {
                words[g % 4] |= (block[g] & 15u) << (g / 4 * 4) | static_cast<u32>(block[g] >> 4) << (16 + g / 4 * 4);
            }
            if (block != nullptr) {
                const f32 d = __fmul_rn(read_float(block + 80, 0, kF16), threadIdx.x % 16 < 8 ? 0x1p111f : 0x1p109f),
                          least = __fmul_rn(read_float(block + 82, 0, kF16), -0x1p-22f);
                const f32 rest[2] = {__fsub_rn(d, round_bf16(d)), __fsub_rn(least, round_bf16(least))};
                words[4] = bf16_bits(d) | bf16_bits(least) << 16;
                words[5] = bf16_bits(rest[0]) | bf16_bits(rest[1]) << 16;
            }
            u32* scales = reinterpret_cast<u32*>(to + Q2K::CodeBytes);
            for (int q = 0; q < 4; ++q) {
                scales[threadIdx.x * 4 + q] = words[q];
            }
            scales[256 + threadIdx.x * 2] = words[4], scales[257 + threadIdx.x * 2] = words[5];
        }
    }
};

template <class F>
__device__ __forceinline__ void pack(const PackPackedArgs& args) {
    begin_after_previous();
    const i32 unit = blockIdx.x, tile = blockIdx.y;
    for (i32 stripe = 0; stripe < 4; ++stripe) {
        Packer<F>::run(args, args.to + ((static_cast<i64>(tile) * args.units + unit) * 4 + stripe) * F::Bytes, tile,
                       stripe, unit * F::K);
    }
}

}  // namespace sparrow_packed

#define PACKED_PACK(Name, ...)                                                                         \
    extern "C" __global__ void __launch_bounds__(sparrow_packed::kPackThreads, 4)                        \
        sparrow_packed_pack_##Name(const __grid_constant__ PackPackedArgs args) {                      \
        sparrow_packed::pack<__VA_ARGS__>(args);                                                       \
    }
