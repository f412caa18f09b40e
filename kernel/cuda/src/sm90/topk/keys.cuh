// Keys: integers that have the order of the scores. Candidates: 64-bit integers that have the order of selection.
#pragma once

#include "ptx/types.h"

namespace sparrow_topk {

constexpr u32 kKeyMinusInf = 0x007FFFFFu;  // keys up to this one are never selected
constexpr u32 kKeyMaxFinite = 0xFF7FFFFFu;

__device__ __forceinline__ float minus_inf() {
    return __uint_as_float(0xFF800000u);
}

// Returns the key of a score. Keys are monotone in the score. -0 and +0 have one key, because they compare equal. The
// caller must have excluded NaN by a comparison.
__device__ __forceinline__ u32 key_of(float score) {
    const u32 bits = __float_as_uint(score + 0.0f);
    return bits ^ (static_cast<u32>(static_cast<i32>(bits) >> 31) | 0x80000000u);
}

__device__ __forceinline__ float score_of(u32 key) {
    return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}

// Returns the largest key whose score compares below every score at or above `key`. -0 is not below +0, and nothing
// is below -inf.
__device__ __forceinline__ u32 just_below(u32 key) {
    return key <= kKeyMinusInf ? kKeyMinusInf : key - (key == 0x80000000u ? 2u : 1u);
}

// A candidate has its key in the upper half and its inverted position in the lower half. Candidates are distinct, and
// of two equal scores the one at the lower position is the larger candidate.
__device__ __forceinline__ u64 candidate(u32 key, u32 position) {
    return static_cast<u64>(key) << 32 | ~position;
}

__device__ __forceinline__ u32 candidate_key(u64 c) {
    return static_cast<u32>(c >> 32);
}

}  // namespace sparrow_topk
