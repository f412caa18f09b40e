// Scores as integers that sort like the scores, and candidates: 64-bit integers whose order is the order of selection.
#pragma once

#include "ptx/types.h"

namespace sparrow_topk {

constexpr u32 kKeyMinusInf = 0x007FFFFFu;  // never selected, like everything below it
constexpr u32 kKeyMaxFinite = 0xFF7FFFFFu;

__device__ __forceinline__ float minus_inf() {
    return __uint_as_float(0xFF800000u);
}

// Monotone in the score; -0 and +0 get one key, as they compare equal. Not for NaN: callers have dropped it by
// comparing.
__device__ __forceinline__ u32 key_of(float score) {
    const u32 bits = __float_as_uint(score + 0.0f);
    return bits ^ (static_cast<u32>(static_cast<i32>(bits) >> 31) | 0x80000000u);
}

__device__ __forceinline__ float score_of(u32 key) {
    return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}

// The largest key whose score compares below every score at or above `key`: -0 is not below +0, and nothing is below
// -inf.
__device__ __forceinline__ u32 just_below(u32 key) {
    return key <= kKeyMinusInf ? kKeyMinusInf : key - (key == 0x80000000u ? 2u : 1u);
}

// A candidate: its key above, its inverted position below. Candidates are distinct, and of two equal scores the one
// at the lower position is the larger candidate.
__device__ __forceinline__ u64 candidate(u32 key, u32 position) {
    return static_cast<u64>(key) << 32 | ~position;
}

__device__ __forceinline__ u32 candidate_key(u64 c) {
    return static_cast<u32>(c >> 32);
}

}  // namespace sparrow_topk
