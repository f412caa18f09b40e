// Cache rows without a rotary part: 528 bytes, which are 512 codes and 4 float32 scales of 128 codes each.
#pragma once

#include "sm80/sparse/rows.cuh"

namespace portable {

struct NopeRow {
    static constexpr int D = 512, HalfSteps = 32, kPieces = 33, kGroups = 8;
    static constexpr bool kHalves = true, kTwoStreams = false;
    static constexpr i64 kRowBytes = 528;

    static __device__ __forceinline__ void convert(u32 to, u32 from, u32 e) {
        convert_four_scales(to, from, e, load_shared(from + 512));
    }
    static __device__ __forceinline__ void store_group(u32 to, u32 from, u32 e, int i, uint2 codes) {
        store_scaled(to, e, i, codes, four_scales(from, i));
    }
    static __device__ __forceinline__ void store_rope(u32, u32, u32) {}
};

}  // namespace portable
