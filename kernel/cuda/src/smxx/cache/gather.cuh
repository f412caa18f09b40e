// Gathers from a paged main cache into consecutive rows.
//
// In:    a pool in one of the layouts, and the rows to gather: a slot list, or page tables with lengths.
// Out:   rows of 1152 bytes (bf16, for kernels over contiguous rows) or 656 bytes (conversion of 576-byte rows); rows
//        of missing slots are zeros.
// Block: 8 warps, one row per warp.
// Bytes: one input row is read and one output row is written. On an H200 65,536 random rows reach 89 / 82 / 81 % of
//        the copy bandwidth from 1152- / 656- / 576-byte rows to bf16, and 72 % from 576 to 656 bytes.
#pragma once
#include "smxx/cache/row.cuh"

// Converts 576-byte rows to 656-byte rows. With a power-of-two scale the codes are kept and nothing is rounded. With
// another scale the values are quantised again by the 656-byte rule.
struct RawToBlock {
    static constexpr i32 kBytes = BlockRow::kBytes;
    using From = RawRow;
    static DEVICE void convert(const u8* from, u8* to, f32 k_scale) {
        Row r;
        RawRow::load(from, r, k_scale);
        if (is_pow2(k_scale)) BlockRow::put(to, reinterpret_cast<const uint4*>(from)[lane_id()], k_scale, r);
        else BlockRow::store(to, r, k_scale);
    }
};

// Converts rows of any layout to bf16: value times scale in float32, rounded once.
template <class Layout> struct ToBf16 {
    static constexpr i32 kBytes = Bf16Row::kBytes;
    using From = Layout;
    static DEVICE void convert(const u8* from, u8* to, f32 k_scale) {
        Row r;
        Layout::load(from, r, k_scale);
        Bf16Row::store(to, r, 1.0f);
    }
};

template <int Bytes> DEVICE void store_zeros(u8* row) {
    static_assert(Bytes % 16 == 0, "rows are whole 16-byte chunks");
    for (i32 i = lane_id(); i < Bytes / 16; i += 32) reinterpret_cast<uint4*>(row)[i] = make_uint4(0, 0, 0, 0);
}

template <class Conversion, class Args> DEVICE void gather(const Args& a) {
    begin_after_previous();
    i64 row = warp_row();
    if (row >= a.count) return;
    i64 slot = slot_of(a.source, a.pool, row);
    if (slot == kBeyond) return;
    slot = checked_slot(a.pool, slot, a.faults);
    u8* out = a.rows + row * a.row_bytes;
    if (slot < 0) {
        store_zeros<Conversion::kBytes>(out);
        return;
    }
    Place at = locate(a.pool, slot);
    Conversion::convert(at.page + (i64)at.row * Conversion::From::kBytes, out, a.k_scale);
}
