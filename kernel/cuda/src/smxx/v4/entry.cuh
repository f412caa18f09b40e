// V4 cache entries: 448 e4m3 values in 7 groups of 64 with power-of-two scales, and 64 rotated bf16 values.
//
// Lane l holds values 16l to 16l+15 of the 512. Lanes 0 to 27 hold the quantised part (a group is 4 lanes), and lanes
// 28 to 31 the rotated part. The data rows of a page come first, 576 bytes each; the 8-byte scale rows follow them.
#pragma once
#include "smxx/cache/row.cuh"
#include "smxx/rows/norm.cuh"
#include "smxx/v4/args.h"

constexpr i32 kV4DataBytes = 576;
constexpr i32 kV4ScaleBytes = 8;
constexpr i32 kV4QuantLanes = 28;

DEVICE u8* v4_data(const Place& at) { return at.page + (i64)at.row * kV4DataBytes; }
DEVICE u8* v4_scales(const Place& at,
    i32 page_tokens) { return at.page + (i64)page_tokens * kV4DataBytes + (i64)at.row * kV4ScaleBytes; }

// Returns the exponent byte of a group's scale: max(amax, 1e-4) / 448, rounded up to a power of two.
DEVICE u32 v4_exponent(u32 amax) {
    u32 raw = __float_as_uint(__fdiv_rn(fmaxf(__uint_as_float(amax), 1e-4f), kMaxE4M3));
    return (raw + 0x7FFFFFu) >> 23;
}

// Returns the value of an exponent byte: 2^(e-127), or NaN for 255.
DEVICE f32 v4_scale(u32 e) {
    if (e == 0) return __uint_as_float(0x00400000u);
    return __uint_as_float(e == 255 ? 0x7FC00000u : e << 23);
}

// Normalises a lane's 16 values and rounds them to bf16. low and high are sums of eight squares, which are added in
// float64.
DEVICE void normalise_entry(const WriteV4Args& a, f32 (&v)[16], f32 low, f32 high) {
    RMSNormArgs norm{};
    norm.weight = a.norm;
    norm.weight_bf16 = a.norm_bf16;
    norm.columns = 32 * 16;
    norm.epsilon = a.epsilon;
    const f32 inverse = inverse_root(warp_total(__dadd_rn(low, high)), norm);
#pragma unroll
    for (int i = 0; i < 16; i++) {
        v[i] = bf16_low(static_cast<u16>(bf16_bits(normalised(norm, v[i], inverse, 16 * lane_id() + i))));
    }
}

// Writes bf16 rows [tokens, 512] as entries; rows are normalised here or were normalised before. Reads 1024 + 256
// bytes and writes 584 bytes per token; one warp per token. On an H200 64 tokens take 2.5 us (launch bound) and 4096
// tokens 6.3 us. `block` is the number of a block of 8 tokens.
DEVICE void write_v4_body(const WriteV4Args& a, i64 block) {
    begin_after_previous();
    i64 token = block * kWarpsPerBlock + (threadIdx.x >> 5);
    if (token >= a.tokens) return;
    i64 slot = checked_slot(a.pool, a.slots[token], a.faults);
    if (slot < 0) return;
    i32 lane = lane_id();
    const uint4* in = reinterpret_cast<const uint4*>(a.rows + token * a.row_stride) + 2 * lane;
    f32 v[16];
    load_bf16x8(in[0], v);
    load_bf16x8(in[1], v + 8);
    if (a.norm != nullptr) normalise_entry(a, v, eight_squares(in[0]), eight_squares(in[1]));

    u32 exponent = v4_exponent(group_max<4>(row_amax(v)));
    u64 scales = 0; // byte g is the exponent of group g; byte 7 is 0
#pragma unroll
    for (int g = 0; g < 7; g++) scales |= (u64)__shfl_sync(ptx::kFullMask, exponent, 4 * g) << (8 * g);

    Place at = locate(a.pool, slot);
    u8* data = v4_data(at);
    if (lane == 0) *reinterpret_cast<u64*>(v4_scales(at, a.pool.page_tokens)) = scales;
    if (lane < kV4QuantLanes) {
        f32 inverse = __uint_as_float((254u - exponent) << 23);
#pragma unroll
        for (int i = 0; i < 16; i++) v[i] = times(v[i], inverse);
        reinterpret_cast<uint4*>(data)[lane] = pack_e4m3x16(v);
        return;
    }
    i32 pair = 8 * (lane - kV4QuantLanes);
    if (const f32* angles = rotary(a.rotary, a.positions[token], a.faults)) {
#pragma unroll
        for (int p = 0; p < 8; p++) rotate(v[2 * p], v[2 * p + 1], angles[pair + p], angles[32 + pair + p]);
    }
    uint4* out = reinterpret_cast<uint4*>(data + 448) + 2 * (lane - kV4QuantLanes);
    out[0] = pack_bf16x8(v);
    out[1] = pack_bf16x8(v + 8);
}

// Converts entries to bf16 rows [count, 512]. The rotated part is copied bit for bit; missing entries become zeros.
// Reads 584 bytes and writes 1024 bytes per row; reaches 70 % of the copy bandwidth on an H200 at 65,536 random rows.
template <class Args> DEVICE void gather_v4(const Args& a) {
    begin_after_previous();
    i64 row = warp_row();
    if (row >= a.count) return;
    i64 slot = slot_of(a.source, a.pool, row);
    if (slot == kBeyond) return;
    slot = checked_slot(a.pool, slot, a.faults);
    i32 lane = lane_id();
    uint4* out = reinterpret_cast<uint4*>(a.rows + row * a.row_bytes) + 2 * lane;
    if (slot < 0) {
        out[0] = out[1] = make_uint4(0, 0, 0, 0);
        return;
    }
    Place at = locate(a.pool, slot);
    const u8* data = v4_data(at);
    if (lane >= kV4QuantLanes) {
        const uint4* in = reinterpret_cast<const uint4*>(data + 448) + 2 * (lane - kV4QuantLanes);
        out[0] = in[0];
        out[1] = in[1];
        return;
    }
    f32 v[16], scale = v4_scale(v4_scales(at, a.pool.page_tokens)[lane >> 2]);
    unpack_e4m3x16(reinterpret_cast<const uint4*>(data)[lane], v);
#pragma unroll
    for (int i = 0; i < 16; i++) v[i] = __fmul_rn(v[i], scale);
    out[0] = pack_bf16x8(v);
    out[1] = pack_bf16x8(v + 8);
}
