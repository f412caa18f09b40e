// Cache rows without a rotary part: 528 bytes, which are 512 codes and 4 float32 scales of 128 codes each.
#pragma once

#include "sm80/sparse/sparse.cuh"

namespace portable {

struct NopeRow {
    static constexpr int D = 512, HalfSteps = 32;
    static constexpr bool kHalves = true, kTwoStreams = false;
    static constexpr i64 kRowBytes = 528;
    ScaledCodes codes;

    __device__ __forceinline__ void clear() { codes.clear(); }
    __device__ __forceinline__ void load(const u8* row, const u8*, u32 e) { codes.load(row, e); }
    __device__ __forceinline__ void store(u32 to, u32 e) const { codes.store(to, e); }
};

}  // namespace portable
