// Causal convolution of each channel over four rows of its sequence, followed by silu.
//
// In, out: bf16 rows of the pass; earlier rows of the sequence in float32, from its state slot or from its held-back
//          rows.
// Block:   256 threads, four adjacent channels per thread. With few rows, blockIdx.y is a sequence: a thread
//          processes its rows in order and then stores the last three in the slot. With many rows, blockIdx.y is a
//          run of 64 entries of the row list, which it reads to shared memory first, so that loads of rows do not
//          wait for entries. A second launch (convolve_keep) fills the slots after all blocks have read them. In both
//          cases an element is a sum of four products, oldest first, so the bits are equal.
// Bytes:   each row is read once and written once; the three rows before a run are read once more, from cache.
#pragma once
#include "smxx/linear/sequences.cuh"

constexpr i32 kTaps = 4;
constexpr i32 kConvRun = 64; // row-list entries per block if there are many rows

// Returns the row that is `back` rows before row 0 of this pass (1 is the previous row), for a sequence with a state.
DEVICE float4 before(const ConvolveArgs& a, const Span& s, i32 back, i32 channel) {
    const i32 at = s.held - back; // index of the held-back row; negative: one of the slot's three rows
    if (at >= 0) {
        const i64 row = static_cast<i64>(s.slot) * a.of.held + at;
        return *reinterpret_cast<const float4*>(a.held + row * a.columns + channel);
    }
    if (s.begins) return make_float4(0, 0, 0, 0);
    const i64 row = static_cast<i64>(s.slot) * 3 + 3 + at;
    return *reinterpret_cast<const float4*>(a.state + row * a.columns + channel);
}

// Returns row i of a sequence. A negative i is a row before this pass.
DEVICE float4 conv_row(const ConvolveArgs& a, const Span& s, i32 i, i32 channel) {
    if (i < 0) return before(a, s, -i, channel);
    const i32 row = row_at(a.of, s, i);
    return row < 0 ? make_float4(0, 0, 0, 0) : load_bf16x4(a.x + row * a.x_stride + channel);
}

DEVICE f32 silu_of_taps(f32 a, f32 b, f32 c, f32 d, float4 w) {
    f32 sum = __fmul_rn(w.x, a);
    sum = __fmaf_rn(w.y, b, sum);
    sum = __fmaf_rn(w.z, c, sum);
    sum = __fmaf_rn(w.w, d, sum);
    return __fmul_rn(sum, fast_sigmoid(sum));
}

struct Taps {
    float4 w[4]; // weights of four channels, one vector per tap
};
DEVICE Taps taps_at(const ConvolveArgs& a, i32 channel) {
    Taps t;
#pragma unroll
    for (int i = 0; i < 4; i++) t.w[i] = reinterpret_cast<const float4*>(a.weight)[channel + i];
    return t;
}

DEVICE void keep_rows(f32* to, const ConvolveArgs& a, i64 at, i32 channel, float4 x, float4 y, float4 z) {
    *reinterpret_cast<float4*>(to + (3 * at) * a.columns + channel) = x;
    *reinterpret_cast<float4*>(to + (3 * at + 1) * a.columns + channel) = y;
    *reinterpret_cast<float4*>(to + (3 * at + 2) * a.columns + channel) = z;
}

// An entry of the row list: a row of the pass and the snapshot slot of the state after it; negative: none.
struct ConvEntry {
    i32 row, snapshot;
};

// Computes rows [from, to) of a sequence. entry(i) returns the entry of row i.
template <class Entry>
DEVICE void convolve(const ConvolveArgs& a, const Span& s, i32 from, i32 to, i32 channel, const Entry& entry) {
    if (s.slot < 0) {
        for (i32 i = from; i < to; i++) {
            const i32 row = entry(i).row;
            if (row >= 0) store_bf16x4(a.out + row * a.out_stride + channel, make_float4(0, 0, 0, 0));
        }
        return;
    }
    const Taps t = taps_at(a, channel);
    float4 x = conv_row(a, s, from - 3, channel), y = conv_row(a, s, from - 2, channel),
           z = conv_row(a, s, from - 1, channel);
    constexpr int kTogether = 8; // rows that are loaded together, to overlap their latency
    for (i32 i = from; i < to; i += kTogether) {
        ConvEntry e[kTogether];
        uint2 n[kTogether];
#pragma unroll
        for (int j = 0; j < kTogether; j++) {
            e[j] = i + j < to ? entry(i + j) : ConvEntry{-1, -1};
            if (e[j].row >= 0) n[j] = *reinterpret_cast<const uint2*>(a.x + e[j].row * a.x_stride + channel);
        }
#pragma unroll
        for (int j = 0; j < kTogether; j++) {
            if (e[j].row < 0) return; // the end of the rows, or a row out of range
            const float4 v = widen_bf16x4(n[j]);
            store_bf16x4(a.out + e[j].row * a.out_stride + channel,
                         make_float4(silu_of_taps(x.x, y.x, z.x, v.x, t.w[0]), silu_of_taps(x.y, y.y, z.y, v.y, t.w[1]),
                                     silu_of_taps(x.z, y.z, z.z, v.z, t.w[2]),
                                     silu_of_taps(x.w, y.w, z.w, v.w, t.w[3])));
            x = y, y = z, z = v;
            if (e[j].snapshot >= 0) keep_rows(a.kept, a, e[j].snapshot, channel, x, y, z);
        }
    }
}

// Stores the last three rows of a sequence in its slot. If the rows of this pass are held back, stores the three rows
// before them instead, and adds the rows of this pass to the held-back rows.
DEVICE void keep_last(const ConvolveArgs& a, const Span& s, i32 channel) {
    if (s.slot < 0) return;
    const i32 end = s.holds ? 0 : s.rows;
    const float4 x = conv_row(a, s, end - 3, channel), y = conv_row(a, s, end - 2, channel),
                 z = conv_row(a, s, end - 1, channel);
    keep_rows(a.state, a, s.slot, channel, x, y, z);
    if (!s.holds) return;
    for (i32 i = 0; i < s.rows; i++) {
        const i64 row = static_cast<i64>(s.slot) * a.of.held + i;
        *reinterpret_cast<float4*>(a.held + row * a.columns + channel) = conv_row(a, s, i, channel);
    }
}

DEVICE i32 conv_channel() { return 4 * (blockIdx.x * kThreads + threadIdx.x); }

DEVICE void convolve_few_body(const ConvolveArgs& a) {
    begin_after_previous();
    const i32 channel = conv_channel();
    if (channel >= a.columns) return;
    const Span s = span_at(a.of, blockIdx.y);
    convolve(a, s, 0, s.rows, channel, [&](i32 i) {
        const i32 row = row_at(a.of, s, i);
        return ConvEntry{row, row < 0 ? -1 : snapshot_at(a.of, row)};
    });
    keep_last(a, s, channel);
}

DEVICE void convolve_many_body(const ConvolveArgs& a) {
    __shared__ ConvEntry entries[kConvRun];
    begin_after_previous();
    const i32 first = blockIdx.y * kConvRun, last = min(first + kConvRun, a.of.count);
    if (first + static_cast<i32>(threadIdx.x) < last) {
        const i32 row = row_at(a.of, Span{}, first + threadIdx.x);
        entries[threadIdx.x] = ConvEntry{row, row < 0 ? -1 : snapshot_at(a.of, row)};
    }
    __syncthreads();
    const i32 channel = conv_channel();
    if (channel >= a.columns) return;
    for (i32 n = sequence_of(a.of, first), at = first; n < a.of.sequences && at < last; n++) {
        const Span s = span_at(a.of, n);
        const i32 end = min(s.first + s.rows, last);
        if (end <= at) continue;
        convolve(a, s, at - s.first, end - s.first, channel,
                 [&](i32 i) { return entries[s.first + i - first]; });
        at = end;
    }
}

DEVICE void convolve_keep_body(const ConvolveArgs& a) {
    begin_after_previous();
    const i32 channel = conv_channel();
    if (channel < a.columns) keep_last(a, span_at(a.of, blockIdx.y), channel);
}
