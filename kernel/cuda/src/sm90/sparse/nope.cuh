// Cache rows without a rotary part: 528 bytes, which are 512 codes and 4 f32 scales of 128 codes each.
#pragma once

#include "sm90/sparse/convert.cuh"

namespace sparrow_sparse {

struct NopeFormat {
    static constexpr int kTiles = 8, kCodeTiles = 8, kBf16Tiles = 0;
    static constexpr bool kTwoStreams = false;
    static constexpr bool kApart = false;
    static constexpr bool kMixed = false;
    static constexpr i64 kRowBytes = 528;
    float2 left, right;

    __device__ __forceinline__ void load_left(const u8* row, const u8*) { left = BlockFormat::load_scales(row + 512); }
    __device__ __forceinline__ void load_right(const u8* row, u32) { right = BlockFormat::load_scales(row + 520); }
    __device__ __forceinline__ void clear_left() { left = make_float2(0.0f, 0.0f); }
    __device__ __forceinline__ void clear_right() { right = make_float2(0.0f, 0.0f); }
    __device__ __forceinline__ void store(u32 tile, int i, u32 r, u32 q, uint4 codes) const {
        store_codes(tile, r, q, codes, half_scale(i < 2 ? left.x : i < 4 ? left.y : i < 6 ? right.x : right.y));
    }
    __device__ __forceinline__ void store_rope(u32, u32, u32) const {}
};

}  // namespace sparrow_sparse
