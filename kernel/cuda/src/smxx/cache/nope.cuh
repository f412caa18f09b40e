// Latent rows of 512 values without a rotary part, for the writer and the gathers of write.cuh and gather.cuh.
#pragma once
#include "smxx/cache/gather.cuh"
#include "smxx/cache/write.cuh"

// A row of 1024 bytes: 512 bf16 latent values.
struct NopeBf16Row {
    static constexpr i32 kBytes = 1024;
    static DEVICE void store(u8* row, const Row& r, f32) {
        uint4* out = reinterpret_cast<uint4*>(row) + 2 * lane_id();
        out[0] = pack_bf16x8(r.latent);
        out[1] = pack_bf16x8(r.latent + 8);
    }
    static DEVICE void load(const u8* row, Row& r, f32) {
        const uint4* in = reinterpret_cast<const uint4*>(row) + 2 * lane_id();
        load_bf16x8(in[0], r.latent);
        load_bf16x8(in[1], r.latent + 8);
    }
};

// A row of 528 bytes: 512 e4m3 codes and 4 float32 scales, one per 128 values.
struct NopeBlockRow {
    static constexpr i32 kBytes = 528;
    static DEVICE void store(u8* row, const Row& r, f32) {
        const f32 scale = latent_scale(group_max<8>(row_amax(r.latent)));
        const f32 inverse = __fdiv_rn(1.0f, scale); // exact: the scale is a power of two
        f32 q[16];
#pragma unroll
        for (int i = 0; i < 16; i++) q[i] = times(r.latent[i], inverse);
        reinterpret_cast<uint4*>(row)[lane_id()] = pack_e4m3x16(q);
        if ((lane_id() & 7) == 0) reinterpret_cast<f32*>(row + 512)[lane_id() >> 3] = scale;
    }
    static DEVICE void load(const u8* row, Row& r, f32) {
        unpack_e4m3x16(reinterpret_cast<const uint4*>(row)[lane_id()], r.latent);
        const f32 scale = reinterpret_cast<const f32*>(row + 512)[lane_id() >> 3];
#pragma unroll
        for (int i = 0; i < 16; i++) r.latent[i] = __fmul_rn(r.latent[i], scale);
    }
};

template <class Layout> struct NopeToBf16 {
    static constexpr i32 kBytes = NopeBf16Row::kBytes;
    using From = Layout;
    static DEVICE void convert(const u8* from, u8* to, f32 k_scale) {
        Row r;
        Layout::load(from, r, k_scale);
        NopeBf16Row::store(to, r, 1.0f);
    }
};

// Writes the rows of all tokens, one warp per token.
template <class Layout> DEVICE void write_nope(const WriteMainArgs& a) {
    begin_after_previous();
    const i64 token = warp_row();
    if (token >= a.tokens) return;
    const i64 slot = checked_slot(a.pool, a.slots[token], a.faults);
    if (slot < 0) return;
    Row r;
    const uint4* latent = reinterpret_cast<const uint4*>(a.latent + token * a.latent_stride) + 2 * lane_id();
    load_bf16x8(latent[0], r.latent);
    load_bf16x8(latent[1], r.latent + 8);
    if (a.norm != nullptr) norm_latent(a, r.latent);
    const Place at = locate(a.pool, slot);
    Layout::store(at.page + static_cast<i64>(at.row) * Layout::kBytes, r, 1.0f);
}
