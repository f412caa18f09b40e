// Prepares indexer keys and queries: from the projection output to FP8.
//
// Keys:     bf16 [tokens, 128]: LayerNorm, or RMSNorm if there is no beta, then rotation, bf16, Hadamard, e4m3 with
//           one scale. They are stored in pages, with the keys of a page followed by their scales.
// Queries:  bf16 [tokens, heads, 128]: rotation, bf16, Hadamard, e4m3. The scale is multiplied into the weight of the
//           head.
// Block:    32 groups of 8 lanes, one vector per group. For queries, blockIdx.x is the token and blockIdx.y is the
//           number of a block of 32 heads.
// Bytes:    256 bytes read and 132 written per vector. On an H200 the keys of 64 tokens take 3.9 us and those of 4096
//           tokens 5.2 us; the float64 chain of the LayerNorm is the longest part. Queries of 64 tokens with 64 heads
//           take 3.5 us, and of 4096 tokens 59 us, 41 % of the copy bandwidth. The latter time is bound by instruction
//           issue, mostly of the Hadamard transform. The gather reaches 75 % of the copy bandwidth at 262,144 keys.
// Rounding: The sums and the result of the LayerNorm are float64, rounded to float32 once, so in practice the bits do
//           not depend on the order of summation. Later operations are float32, and each rounds once.
#pragma once
#include "smxx/indexer/vector.cuh"
#include "smxx/rows/norm.cuh"

// Returns the sum of sixteen values over the group. Four short chains are used because a float64 addition has a long
// latency.
template <class F> DEVICE f64 sum16(F value) {
    f64 chain[4];
#pragma unroll
    for (int c = 0; c < 4; c++) chain[c] = __dadd_rn(__dadd_rn(value(c), value(c + 4)),
        __dadd_rn(value(c + 8), value(c + 12)));
    return group_sum(__dadd_rn(__dadd_rn(chain[0], chain[1]), __dadd_rn(chain[2], chain[3])));
}

DEVICE void layer_norm(f32 v[16], const f32* gamma, const f32* beta, f64 epsilon) {
    f64 mean = __dmul_rn(sum16([&](int i) { return (f64)v[i]; }), 1.0 / 128);
    f64 variance = __dmul_rn(sum16([&](int i) {
                                 f64 d = __dadd_rn(v[i], -mean);
                                 return __dmul_rn(d, d);
                             }),
                             1.0 / 128);
    f64 inverse = rsqrt(__dadd_rn(variance, epsilon));
    f32 g[16], b[16];
    load16(gamma + 16 * group_lane(), g);
    load16(beta + 16 * group_lane(), b);
#pragma unroll
    for (int i = 0; i < 16; i++) {
        f64 scaled = __dmul_rn(__dadd_rn(v[i], -mean), inverse);
        v[i] = __double2float_rn(__dadd_rn(__dmul_rn(scaled, g[i]), b[i]));
    }
}

// Applies RMSNorm and rounds to bf16. Results are bitwise equal to those of smxx/rows/norm.cuh.
DEVICE void root_norm(f32 v[16], const f32* gamma, f64 epsilon) {
    f32 low = 0, high = 0, g[16];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        low = __fmaf_rn(v[i], v[i], low);
        high = __fmaf_rn(v[8 + i], v[8 + i], high);
    }
    RMSNormArgs norm{};
    norm.columns = 128;
    norm.epsilon = epsilon;
    const f32 inverse = inverse_root(group_sum(__dadd_rn(low, high)), norm);
    load16(gamma + 16 * group_lane(), g);
#pragma unroll
    for (int i = 0; i < 16; i++) {
        v[i] = bf16_low(static_cast<u16>(bf16_bits(__fmul_rn(__fmul_rn(v[i], inverse), g[i]))));
    }
}

// Writes the keys of block number `block`, which has 32 tokens.
DEVICE void write_index_key_body(const WriteIndexKeyArgs& a, i64 block) {
    begin_after_previous();
    i64 token = block * kGroupsPerBlock + block_group();
    i64 slot = token < a.tokens ? checked_slot(a.pool, a.slots[token], a.faults) : kNoRow;
    bool active = slot >= 0;
    f32 v[16] = {}, scale;
    const f32* angles = nullptr;
    if (active) {
        load_vector(a.keys + token * a.key_stride, v);
        if (a.rotary.rows > 0) angles = rotary(a.rotary, a.positions[token], a.faults);
    }
    if (a.gamma != nullptr) {
        if (a.beta != nullptr)
            layer_norm(v, a.gamma, a.beta, a.epsilon);
        else
            root_norm(v, a.gamma, a.epsilon);
    }
    uint4 codes = quantise_vector(v, a.recipe, angles, scale);
    if (!active) return;
    Place at = locate(a.pool, slot);
    reinterpret_cast<uint4*>(at.page + (i64)at.row * 128)[group_lane()] = codes;
    if (group_lane() == 0) reinterpret_cast<f32*>(at.page + (i64)a.pool.page_tokens * 128)[at.row] = scale;
}

// Prepares 32 heads of a token, starting at head 32 * block.
DEVICE void index_query_body(const IndexQueryArgs& a, i64 token, i32 block) {
    begin_after_previous();
    i32 head = block * kGroupsPerBlock + block_group();
    bool active = head < a.heads;
    f32 v[16] = {}, scale;
    const f32* angles = nullptr;
    if (active) {
        load_vector(a.queries + token * a.query_stride + (i64)head * 128, v);
        if (a.rotary.rows > 0) angles = rotary(a.rotary, a.positions[token], a.faults);
    }
    uint4 codes = quantise_vector(v, a.recipe, angles, scale); // a padding head has codes of zero
    if (head >= a.padded_heads) return;
    i64 row = token * a.padded_heads + head;
    reinterpret_cast<uint4*>(a.codes + row * 128)[group_lane()] = codes;
    if (group_lane() == 0) a.folded[row] = active
        ? __fmul_rn(__fmul_rn(a.weights[token * a.weight_stride + head], a.weight_scale), scale) : 0.0f;
}

// Copies the keys and scales of a paged index cache to two contiguous arrays, for the ragged score kernel.
template <class Args> DEVICE void gather_index(const Args& a) {
    begin_after_previous();
    i64 row = (i64)blockIdx.x * kGroupsPerBlock + block_group();
    if (row >= a.count) return;
    i64 slot = slot_of(a.source, a.pool, row);
    if (slot == kBeyond) return;
    slot = checked_slot(a.pool, slot, a.faults);
    uint4 codes = make_uint4(0, 0, 0, 0);
    f32 scale = 0.0f;
    if (slot >= 0) {
        Place at = locate(a.pool, slot);
        codes = reinterpret_cast<const uint4*>(at.page + (i64)at.row * 128)[group_lane()];
        scale = reinterpret_cast<const f32*>(at.page + (i64)a.pool.page_tokens * 128)[at.row];
    }
    reinterpret_cast<uint4*>(a.keys + row * 128)[group_lane()] = codes;
    if (group_lane() == 0) a.scales[row] = scale;
}
