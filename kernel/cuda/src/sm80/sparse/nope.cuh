// Cache rows without a rotary part: 528 bytes, which are 512 codes and 4 float32 scales of 128 codes each.
#pragma once

#include "sm80/sparse/sparse.cuh"

namespace portable {

struct NopeRow {
    static constexpr int D = 512, HalfSteps = 32, kPieces = 33;
    static constexpr bool kHalves = true, kTwoStreams = false;
    static constexpr i64 kRowBytes = 528;

    static __device__ __forceinline__ void convert(u32 to, u32 from, u32 e) { convert_scaled(to, from, e); }
};

}  // namespace portable
