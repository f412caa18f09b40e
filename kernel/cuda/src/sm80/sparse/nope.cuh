// Rows without a rotated part: 528 bytes, 512 codes and 4 f32 scales of 128 codes each.
#pragma once

#include "sm80/sparse/sparse.cuh"

namespace portable {

struct NopeRow {
    static constexpr int D = 512, HalfSteps = 32;
    static constexpr bool kHalves = true, kTwoStreams = false;
    static constexpr i64 kRowBytes = 528;
    uint4 codes[4];
    float4 scales;

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            codes[i] = make_uint4(0, 0, 0, 0);
        }
        scales = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    __device__ __forceinline__ void load(const u8* row, const u8*, u32 e) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            codes[i] = __ldg(reinterpret_cast<const uint4*>(row) + e + 8 * i);
        }
        scales = __ldg(reinterpret_cast<const float4*>(row + 512));
    }
    __device__ __forceinline__ void store(u32 to, u32 e) const {
        const float of[4] = {scales.x, scales.y, scales.z, scales.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // pieces e + 8i hold 16 codes each of scale i
            const float up = of[i] * 256.0f;
            store_codes(to + 32 * (e + 8 * i), codes[i], half_pair(up, up));
        }
    }
};

}  // namespace portable
