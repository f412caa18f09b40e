// A latent row distributed over a warp, and the three byte layouts in which it is stored.
//
// Lane l holds latent values 16l to 16l+15 (a tile of 128 values is 8 lanes) and the rotary pair (2l, 2l+1). All
// stores of the latent part are 16 bytes wide; every row starts at a multiple of 16 because 1152, 656 and 576 are
// multiples of 16.
#pragma once
#include "smxx/num.cuh"
#include "smxx/pool.cuh"
#include "smxx/cache/args.h"

struct Row {
    f32 latent[16];
    f32 rope[2];
};

DEVICE void load_bf16x8(const uint4 v, f32 out[8]) {
    const u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        out[2 * i] = bf16_low(w[i]);
        out[2 * i + 1] = bf16_high(w[i]);
    }
}

DEVICE uint4 pack_bf16x8(const f32 v[8]) {
    return make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
}

DEVICE uint4 pack_e4m3x16(const f32 v[16]) {
    return make_uint4(pack_e4m3(v[0], v[1], v[2], v[3]), pack_e4m3(v[4], v[5], v[6], v[7]),
        pack_e4m3(v[8], v[9], v[10], v[11]),
                      pack_e4m3(v[12], v[13], v[14], v[15]));
}

DEVICE void unpack_e4m3x16(const uint4 q, f32 out[16]) {
    unpack_e4m3(q.x, out);
    unpack_e4m3(q.y, out + 4);
    unpack_e4m3(q.z, out + 8);
    unpack_e4m3(q.w, out + 12);
}

DEVICE u32 row_amax(const f32 v[16]) {
    u32 m = 0;
#pragma unroll
    for (int i = 0; i < 16; i++) m = max(m, magnitude(v[i]));
    return m;
}

// A row of 1152 bytes: 512 bf16 latent values and 64 bf16 rotary values.
struct Bf16Row {
    static constexpr i32 kBytes = 1152;
    static DEVICE void store(u8* row, const Row& r, f32) {
        uint4* out = reinterpret_cast<uint4*>(row) + 2 * lane_id();
        out[0] = pack_bf16x8(r.latent);
        out[1] = pack_bf16x8(r.latent + 8);
        reinterpret_cast<u32*>(row + 1024)[lane_id()] = pack_bf16(r.rope[0], r.rope[1]);
    }
    static DEVICE void load(const u8* row, Row& r, f32) {
        const uint4* in = reinterpret_cast<const uint4*>(row) + 2 * lane_id();
        load_bf16x8(in[0], r.latent);
        load_bf16x8(in[1], r.latent + 8);
        u32 p = reinterpret_cast<const u32*>(row + 1024)[lane_id()];
        r.rope[0] = bf16_low(p);
        r.rope[1] = bf16_high(p);
    }
};

// A row of 656 bytes: 512 e4m3 codes, 4 float32 scales (one per 128 values) and 64 bf16 rotary values.
struct BlockRow {
    static constexpr i32 kBytes = 656;
    static DEVICE void store(u8* row, const Row& r, f32) {
        f32 scale = latent_scale(group_max<8>(row_amax(r.latent)));
        f32 inverse = __fdiv_rn(1.0f, scale); // exact: the scale is a power of two
        f32 q[16];
#pragma unroll
        for (int i = 0; i < 16; i++) q[i] = times(r.latent[i], inverse);
        put(row, pack_e4m3x16(q), scale, r);
    }
    // Stores the codes, the scale of the tile and the rotary pair of this lane.
    static DEVICE void put(u8* row, uint4 codes, f32 scale, const Row& r) {
        reinterpret_cast<uint4*>(row)[lane_id()] = codes;
        if ((lane_id() & 7) == 0) reinterpret_cast<f32*>(row + 512)[lane_id() >> 3] = scale;
        reinterpret_cast<u32*>(row + 528)[lane_id()] = pack_bf16(r.rope[0], r.rope[1]);
    }
    static DEVICE void load(const u8* row, Row& r, f32) {
        unpack_e4m3x16(reinterpret_cast<const uint4*>(row)[lane_id()], r.latent);
        f32 scale = reinterpret_cast<const f32*>(row + 512)[lane_id() >> 3];
#pragma unroll
        for (int i = 0; i < 16; i++) r.latent[i] = __fmul_rn(r.latent[i], scale);
        u32 p = reinterpret_cast<const u32*>(row + 528)[lane_id()];
        r.rope[0] = bf16_low(p);
        r.rope[1] = bf16_high(p);
    }
};

// A row of 576 bytes: 512 e4m3 latent codes and 64 e4m3 rotary codes, with one scale for the whole pool.
struct RawRow {
    static constexpr i32 kBytes = 576;
    static DEVICE void store(u8* row, const Row& r, f32 k_scale) {
        f32 q[16], a, b;
        if (is_pow2(k_scale) && k_scale <= 0x1p126f) { // exact: the reciprocal is a normal power of two
            f32 inverse = __fdiv_rn(1.0f, k_scale);
#pragma unroll
            for (int i = 0; i < 16; i++) q[i] = times(r.latent[i], inverse);
            a = times(r.rope[0], inverse), b = times(r.rope[1], inverse);
        } else {
#pragma unroll
            for (int i = 0; i < 16; i++) q[i] = over(r.latent[i], k_scale);
            a = over(r.rope[0], k_scale), b = over(r.rope[1], k_scale);
        }
        reinterpret_cast<uint4*>(row)[lane_id()] = pack_e4m3x16(q);
        reinterpret_cast<u16*>(row + 512)[lane_id()] = (u16)pack_e4m3(a, b);
    }
    static DEVICE void load(const u8* row, Row& r, f32 k_scale) {
        unpack_e4m3x16(reinterpret_cast<const uint4*>(row)[lane_id()], r.latent);
        f32 pair[4];
        unpack_e4m3(reinterpret_cast<const u16*>(row + 512)[lane_id()], pair);
#pragma unroll
        for (int i = 0; i < 16; i++) r.latent[i] = __fmul_rn(r.latent[i], k_scale);
        r.rope[0] = __fmul_rn(pair[0], k_scale);
        r.rope[1] = __fmul_rn(pair[1], k_scale);
    }
};
