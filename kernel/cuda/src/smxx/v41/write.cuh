// Cache rows of DeepSeek-V4.1 (v41 spec, 4): all 512 values are rotated first and then quantised.
//
// Window: 528 bytes: 512 e4m3 codes, then an exponent per 32 codes.
// Entry:  288 bytes: 512 e2m1 codes, the even one of a pair in the low nibble, then an e4m3 scale per 16 codes.
// Key:    64 bytes: 128 e2m1 codes, and at the end of the page an exponent per 32 codes.
// Query:  quantised as keys, then widened to bf16, which represents a code times a power of two exactly.
// Block:  one warp per row of 512, lane l has values 16l to 16l+15; 8 lanes per vector of 128.
#pragma once
#include "smxx/indexer/prepare.cuh"
#include "smxx/v4/entry.cuh"
#include "smxx/v41/args.h"

// Returns the e2m1 code nearest to a value, ties to the even code; values beyond 6 become 6. A zero keeps its sign.
DEVICE u32 e2m1_code(f32 x) {
    const f32 a = fabsf(x);
    const f32 code = a < 2.0f ? rintf(2.0f * a) : a < 4.0f ? rintf(a) + 2.0f : fminf(rintf(0.5f * a) + 4.0f, 7.0f);
    return static_cast<u32>(code) | (__float_as_uint(x) >> 28 & 8u);
}

// Returns the value of an e2m1 code.
DEVICE f32 e2m1_value(u32 code) {
    const u32 m = code & 7u;
    const f32 v = m < 4 ? 0.5f * m : m == 7 ? 6.0f : m - 2.0f;
    return __uint_as_float(__float_as_uint(v) | (code & 8u) << 28);
}

// Returns the e2m1 codes of sixteen values divided by a scale, as 8 bytes.
DEVICE uint2 pack_e2m1(const f32 (&v)[16], f32 scale) {
    u32 w[2] = {};
#pragma unroll
    for (int i = 0; i < 16; i++) w[i / 8] |= e2m1_code(__fdiv_rn(v[i], scale)) << (4 * (i % 8));
    return make_uint2(w[0], w[1]);
}

// Loads a lane's 16 values of a row, normalised and rotated, and rounded to bf16 after each of the two.
DEVICE void load_v41(const WriteV4Args& a, i64 token, f32 (&v)[16]) {
    const i32 lane = lane_id();
    const uint4* in = reinterpret_cast<const uint4*>(a.rows + token * a.row_stride) + 2 * lane;
    load_bf16x8(in[0], v);
    load_bf16x8(in[1], v + 8);
    if (a.norm != nullptr) normalise_entry(a, v, eight_squares(in[0]), eight_squares(in[1]));
    if (lane < kV4QuantLanes) return;
    const i32 pair = 8 * (lane - kV4QuantLanes);
    if (const f32* angles = rotary(a.rotary, a.positions[token], a.faults)) {
#pragma unroll
        for (int p = 0; p < 8; p++) {
            rotate(v[2 * p], v[2 * p + 1], angles[pair + p], angles[32 + pair + p]);
            round_bf16_fast(v[2 * p], v[2 * p + 1]);
        }
    }
}

constexpr i64 kWindowBytes = 528, kEntryBytes = 288;

template <bool Window> DEVICE void write_v41_body(const WriteV4Args& a) {
    begin_after_previous();
    const i64 token = warp_row();
    if (token >= a.tokens) return;
    const i64 slot = checked_slot(a.pool, a.slots[token], a.faults);
    if (slot < 0) return;
    f32 v[16];
    load_v41(a, token, v);
    const i32 lane = lane_id();
    const u32 top = row_amax(v);
    const Place at = locate(a.pool, slot);
    if (Window) {
        u8* row = at.page + at.row * kWindowBytes;
        const f32 amax = fmaxf(__uint_as_float(group_max<2>(top)), 1e-4f);
        const u32 e = (__float_as_uint(__fmul_rn(amax, 1.0f / 448.0f)) + 0x7FFFFFu) >> 23;
        const f32 inverse = __uint_as_float((254u - e) << 23);
#pragma unroll
        for (int i = 0; i < 16; i++) v[i] = times(v[i], inverse);
        reinterpret_cast<uint4*>(row)[lane] = pack_e4m3x16(v);
        if (lane % 2 == 0) row[512 + lane / 2] = static_cast<u8>(e);
        return;
    }
    u8* row = at.page + at.row * kEntryBytes;
    const f32 least = fminf(fmaxf(__fdiv_rn(__uint_as_float(top), 6.0f), 0x1p-9f), kMaxE4M3);
    const u32 code = pack_e4m3(least, 0.0f) & 0xFFu;
    f32 scale[4];
    unpack_e4m3(code, scale);
    reinterpret_cast<uint2*>(row)[lane] = pack_e2m1(v, scale[0]);
    row[256 + lane] = static_cast<u8>(code);
}

// Rotates a lane's 16 values of a vector of 128 and rounds them to bf16. Returns the exponent of their group of 32.
DEVICE u32 group_v41(f32 (&v)[16], const IndexRecipeView& recipe, const f32* angles) {
    rotate_vector(v, recipe, angles);
    f32 top = 0.0f;
#pragma unroll
    for (int i = 0; i < 16; i += 2) {
        round_bf16_fast(v[i], v[i + 1]);
        top = fmaxf(top, fmaxf(fabsf(v[i]), fabsf(v[i + 1])));
    }
    top = fminf(fmaxf(top, __shfl_xor_sync(ptx::kFullMask, top, 1)), kLargest);
    const f32 scale = __fmul_rn(fmaxf(top, 6 * 0x1p-126f), 1.0f / 6.0f);
    return max((__float_as_uint(scale) + 0x7FFFFFu) >> 23, 1u);
}

DEVICE void write_key_v41_body(const WriteIndexKeyArgs& a) {
    begin_after_previous();
    const i64 token = static_cast<i64>(blockIdx.x) * kGroupsPerBlock + block_group();
    const i64 slot = token < a.tokens ? checked_slot(a.pool, a.slots[token], a.faults) : kNoRow;
    f32 v[16] = {};
    const f32* angles = nullptr;
    if (slot >= 0) {
        load_vector(a.keys + token * a.key_stride, v);
        if (a.rotary.rows > 0) angles = rotary(a.rotary, a.positions[token], a.faults);
    }
    if (a.gamma != nullptr) root_norm(v, a.gamma, a.epsilon);
    const u32 e = group_v41(v, a.recipe, angles);
    if (slot < 0) return;
    const Place at = locate(a.pool, slot);
    const i32 lane = group_lane();
    reinterpret_cast<uint2*>(at.page + static_cast<i64>(at.row) * 64)[lane] = pack_e2m1(v, __uint_as_float(e << 23));
    if (lane % 2 == 0) {
        at.page[static_cast<i64>(a.pool.page_tokens) * 64 + 4 * at.row + lane / 2] = static_cast<u8>(e);
    }
}

// Prepares queries. args.codes are bf16 in this kernel.
DEVICE void query_v41_body(const IndexQueryArgs& a) {
    begin_after_previous();
    const i64 token = blockIdx.x;
    const i32 head = blockIdx.y * kGroupsPerBlock + block_group();
    const bool active = head < a.heads;
    f32 v[16] = {};
    const f32* angles = nullptr;
    if (active) {
        load_vector(a.queries + token * a.query_stride + static_cast<i64>(head) * 128, v);
        if (a.rotary.rows > 0) angles = rotary(a.rotary, a.positions[token], a.faults);
    }
    const f32 scale = __uint_as_float(group_v41(v, a.recipe, angles) << 23);
    if (head >= a.padded_heads) return;
#pragma unroll
    for (int i = 0; i < 16; i++) v[i] = __fmul_rn(e2m1_value(e2m1_code(__fdiv_rn(v[i], scale))), scale);
    const i64 row = token * a.padded_heads + head;
    uint4* out = reinterpret_cast<uint4*>(a.codes + row * 256) + 2 * group_lane();
    out[0] = pack_bf16x8(v);
    out[1] = pack_bf16x8(v + 8);
    if (group_lane() == 0) {
        a.folded[row] = active ? __fmul_rn(a.weights[token * a.weight_stride + head], a.weight_scale) : 0.0f;
    }
}
