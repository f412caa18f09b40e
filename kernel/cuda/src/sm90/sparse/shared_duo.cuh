// Rows of DeepSeek-V4.1 (shared.cuh) for two thread blocks per unit, whose fetching threads have enough registers for
// the codes of two blocks. A lane has 16 values of every tile; in an entry, these 16 values share one scale.
#pragma once

#include "sm90/sparse/shared.cuh"

namespace sparrow_sparse {

struct SharedFormat {
    static constexpr int kTiles = 8, kCodeTiles = 8, kBf16Tiles = 0;
    static constexpr bool kTwoStreams = true;
    static constexpr bool kApart = false;
    static constexpr bool kMixed = true;
    static constexpr i64 kRowBytes = 528, kSecondBytes = 288;
    uint4 left, right;           // scales of each half: 8 exponents, or 16 e4m3 scales
    bool left_entry, right_entry;  // whether each half belongs to an entry

    static __device__ __forceinline__ uint2 load_8(const u8* p) {
        uint2 v;
        asm volatile("ld.global.v2.b32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
        return v;
    }

    // Loads half of a row: the codes of quarter q of its tiles, and its scales.
    template <bool Left>
    __device__ __forceinline__ void load(const u8* row, u32 q, bool entry, uint4 (&codes)[kCodeTiles]) {
        constexpr int kFrom = Left ? 0 : 4;
        uint4& scales = Left ? left : right;
        (Left ? left_entry : right_entry) = entry;
        if (entry) {
#pragma unroll
            for (int i = kFrom; i < kFrom + 4; ++i) {
                // ConvertedRows::arrived tests the last word, so an entry has its codes in the last two.
                const uint2 v = load_8(row + q * 8 + i * 32);
                codes[i].z = v.x;
                codes[i].w = v.y;
            }
            scales = load_16(row + 256 + kFrom * 4);
        } else {
#pragma unroll
            for (int i = kFrom; i < kFrom + 4; ++i) {
                codes[i] = load_16(row + q * 16 + i * 64);
            }
            const uint2 v = load_8(row + 512 + kFrom * 2);
            scales.x = v.x;
            scales.y = v.y;
        }
    }
    __device__ __forceinline__ void clear_left() {
        left = zeros();
        left_entry = false;
    }
    __device__ __forceinline__ void clear_right() {
        right = zeros();
        right_entry = false;
    }
    __device__ __forceinline__ void store(u32 tile, int i, u32 r, u32 q, uint4 codes) const {
        const uint4& s = i < 4 ? left : right;
        if (i < 4 ? left_entry : right_entry) {
            const u32 word = i % 4 == 0 ? s.x : i % 4 == 1 ? s.y : i % 4 == 2 ? s.z : s.w;
            const u32 code = word >> (8 * q) & 0xFF;
            const u32 scale = times(widen(code | code << 8), 0x54005400u);  // times 64: widen_e2m1 divides by it
            u32 v[4];
            widen_e2m1(codes.z, v);
            store_16(tile + tile_byte(r, 2 * q), times(v[0], scale), times(v[1], scale), times(v[2], scale),
                times(v[3], scale));
            widen_e2m1(codes.w, v);
            store_16(tile + tile_byte(r, 2 * q + 1), times(v[0], scale), times(v[1], scale), times(v[2], scale),
                times(v[3], scale));
        } else {
            const u32 b = (i % 4 < 2 ? s.x : s.y) >> (i % 2 * 16 + q / 2 * 8) & 0xFF;
            store_codes(tile, r, q, codes, half_scale(__uint_as_float(b == 0 ? 0x00400000u : b << 23)));
        }
    }
    __device__ __forceinline__ void store_rope(u32, u32, u32) const {}
};

}  // namespace sparrow_sparse
