// Main-cache writer: rotates the key, quantises the latent and stores one row per token.
//
// In:       latent bf16 [tokens, 512], key bf16 [tokens, 64], positions and slots i32 [tokens].
// Out:      one row of the layout at each slot of the pool; other rows are not changed.
// Block:    8 warps, one token per warp.
// Bytes:    1152 + 256 (cosines, sines) bytes read, 1152 / 656 / 576 written per token. On an H200 64 tokens take 1.9
//           us (launch bound) and 4096 tokens 4.8 / 5.1 / 4.7 us, 51 / 39 / 40 % of the copy bandwidth.
// Rounding: the rotated key is rounded to bf16 first, in every layout, so that every layout stores the same key.
#pragma once
#include "smxx/cache/row.cuh"
#include "smxx/rows/norm.cuh"

// Applies RMSNorm to the latent values that the lanes of a warp hold. Results are bitwise equal to those of rms_norm.
DEVICE void norm_latent(const WriteMainArgs& a, f32 v[16]) {
    f32 halves[2] = {};
#pragma unroll
    for (int i = 0; i < 16; i++) halves[i / 8] = __fmaf_rn(v[i], v[i], halves[i / 8]);
    struct {
        i32 columns;
        f64 epsilon;
    } sizes{512, a.epsilon};
    const f32 inverse = inverse_root(warp_total(__dadd_rn(halves[0], halves[1])), sizes);
    const float4* weight = reinterpret_cast<const float4*>(a.norm) + 4 * lane_id();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float4 w = weight[i];
        const f32 each[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int j = 0; j < 4; j++) v[4 * i + j] = round_bf16(__fmul_rn(__fmul_rn(v[4 * i + j], inverse), each[j]));
    }
}

// Writes the rows of block number `block`, which has eight tokens.
template <class Layout> DEVICE void write_main(const WriteMainArgs& a, i64 block) {
    begin_after_previous();
    i64 token = block * kWarpsPerBlock + (threadIdx.x >> 5);
    if (token >= a.tokens) return;
    i64 slot = checked_slot(a.pool, a.slots[token], a.faults);
    if (slot < 0) return;

    i32 lane = lane_id();
    Row r;
    const uint4* latent = reinterpret_cast<const uint4*>(a.latent + token * a.latent_stride) + 2 * lane;
    uint4 first = latent[0], second = latent[1];
    u32 pair = reinterpret_cast<const u32*>(a.key + token * a.key_stride)[lane];
    const f32* angles = rotary(a.rotary, a.positions[token], a.faults);
    load_bf16x8(first, r.latent);
    load_bf16x8(second, r.latent + 8);
    if (a.norm != nullptr) norm_latent(a, r.latent);
    r.rope[0] = bf16_low(pair);
    r.rope[1] = bf16_high(pair);
    if (angles != nullptr) rotate(r.rope[0], r.rope[1], angles[lane], angles[32 + lane]);
    r.rope[0] = round_bf16(r.rope[0]);
    r.rope[1] = round_bf16(r.rope[1]);

    Place at = locate(a.pool, slot);
    Layout::store(at.page + (i64)at.row * Layout::kBytes, r, a.k_scale);
}
