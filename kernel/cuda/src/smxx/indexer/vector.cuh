// An indexer vector of 128 values distributed over a group of 8 lanes: lane l of the group holds values 16l to
// 16l+15.
//
// With 16 values per lane, four of the seven Hadamard stages stay in registers; a warp processes four vectors. All
// lanes of a warp must call these functions together. A group without a vector computes with zeros and stores
// nothing.
#pragma once
#include "smxx/indexer/args.h"
#include "smxx/num.cuh"
#include "smxx/pool.cuh"

constexpr f32 kHadamardNorm = 0.08838834764831845f; // 128^-1/2
constexpr f32 kLargest = 3.402823466e38f;

DEVICE void load16(const f32* from, f32 v[16]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float4 q = reinterpret_cast<const float4*>(from)[i];
        v[4 * i] = q.x, v[4 * i + 1] = q.y, v[4 * i + 2] = q.z, v[4 * i + 3] = q.w;
    }
}

// Rotates the 64 dimensions that start at rope_at; four lanes of the group hold them. With the half-split layout, the
// other element of a pair is 32 values, and therefore 2 lanes, away. Every product and sum is rounded once.
DEVICE void rotate_vector(f32 v[16], const IndexRecipeView& recipe, const f32* angles) {
    i32 at = 16 * group_lane() - recipe.rope_at; // this lane's first rotated dimension, valid from 0 to 48
    bool inside = at >= 0 && at < 64 && angles != nullptr;
    if (recipe.interleaved) {
        if (!inside) return;
#pragma unroll
        for (int p = 0; p < 8; p++) rotate(v[2 * p], v[2 * p + 1], angles[at / 2 + p], angles[32 + at / 2 + p]);
        return;
    }
    f32 cosines[16], sines[16];
    if (inside) {
        load16(angles + (at & 31), cosines);
        load16(angles + 32 + (at & 31), sines);
    }
    bool first = at < 32;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        f32 other = __shfl_xor_sync(ptx::kFullMask, v[i], 2);
        if (!inside) continue;
        // A cos - b sin for the first element of a pair, b cos + a sin for the second.
        f32 cross = __fmul_rn(other, sines[i]);
        v[i] = __fadd_rn(__fmul_rn(v[i], cosines[i]), first ? -cross : cross);
    }
}

// Computes the Sylvester butterflies from stride 1 upwards in float32. The order of the sums determines the bits.
DEVICE void hadamard_vector(f32 v[16]) {
#pragma unroll
    for (int h = 1; h < 16; h *= 2) {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            if (i & h) continue;
            f32 a = v[i], b = v[i + h];
            v[i] = __fadd_rn(a, b);
            v[i + h] = __fsub_rn(a, b);
        }
    }
#pragma unroll
    for (int d = 1; d < kGroupLanes; d *= 2) {
        bool upper = group_lane() & d;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            f32 other = __shfl_xor_sync(ptx::kFullMask, v[i], d);
            v[i] = __fadd_rn(other, upper ? -v[i] : v[i]);
        }
    }
}

// Applies rotation, rounding to bf16, Hadamard transform and quantisation. Returns this lane's sixteen codes; every
// lane of the group gets the scale.
DEVICE uint4 quantise_vector(f32 v[16], const IndexRecipeView& recipe, const f32* angles, f32& scale) {
    rotate_vector(v, recipe, angles);
#pragma unroll
    for (int i = 0; i < 16; i += 2) round_bf16_fast(v[i], v[i + 1]);
    if (recipe.hadamard) {
        hadamard_vector(v);
#pragma unroll
        for (int i = 0; i < 16; i += 2) {
            v[i] = __fmul_rn(v[i], kHadamardNorm);
            v[i + 1] = __fmul_rn(v[i + 1], kHadamardNorm);
            round_bf16_fast(v[i], v[i + 1]);
        }
    }
    f32 amax = 0.0f; // maximum magnitude; NaN is ignored, and infinity counts as the largest finite value
#pragma unroll
    for (int i = 0; i < 16; i++) amax = fmaxf(amax, fabsf(v[i]));
#pragma unroll
    for (int d = 1; d < kGroupLanes; d *= 2) amax = fmaxf(amax, __shfl_xor_sync(ptx::kFullMask, amax, d));
    scale = index_scale(fminf(amax, kLargest), recipe.exact_scale);
    if (recipe.exact_scale) {
#pragma unroll
        for (int i = 0; i < 16; i++) v[i] = __fdiv_rn(v[i], scale);
    } else {
        f32 inverse = __fdiv_rn(1.0f, scale); // exact: the scale is a power of two
#pragma unroll
        for (int i = 0; i < 16; i++) v[i] = __fmul_rn(v[i], inverse);
    }
    u32 w[4];
#pragma unroll
    for (int i = 0; i < 4; i++) w[i] = pack_e4m3_fast(v[4 * i],
        v[4 * i + 1]) | (pack_e4m3_fast(v[4 * i + 2], v[4 * i + 3]) << 16);
    return make_uint4(w[0], w[1], w[2], w[3]);
}

DEVICE void load_vector(const u16* from, f32 v[16]) {
    const uint2* in = reinterpret_cast<const uint2*>(from) + 4 * group_lane();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint2 w = in[i];
        v[4 * i] = bf16_low(w.x);
        v[4 * i + 1] = bf16_high(w.x);
        v[4 * i + 2] = bf16_low(w.y);
        v[4 * i + 3] = bf16_high(w.y);
    }
}
