// Main-cache writer: rotate the key, quantise the latent, store one row per token.
//
// Inputs   latent bf16 [tokens, 512], key bf16 [tokens, 64], positions and slots i32 [tokens].
// Output   one row of the layout at each slot of the pool; other rows are not touched.
// Block    8 warps, one token each.
// Traffic  1152 + 256 (cosines, sines) bytes read, 1152 / 656 / 576 written per token. On an H200 64 tokens take 1.9
//          us (launch bound) and 4096 tokens 4.8 / 5.1 / 4.7 us, 51 / 39 / 40 % of the copy rate.
// Rounding the rotated key is rounded to bf16 first, whatever the layout, so that every layout holds the same key.
#pragma once
#include "smxx/cache/row.cuh"

template <class Layout> DEVICE void write_main(const WriteMainArgs& a) {
    begin_after_previous();
    i64 token = warp_row();
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
    r.rope[0] = bf16_low(pair);
    r.rope[1] = bf16_high(pair);
    if (angles != nullptr) rotate(r.rope[0], r.rope[1], angles[lane], angles[32 + lane]);
    r.rope[0] = round_bf16(r.rope[0]);
    r.rope[1] = round_bf16(r.rope[1]);

    Place at = locate(a.pool, slot);
    Layout::store(at.page + (i64)at.row * Layout::kBytes, r, a.k_scale);
}
