// The rows of a sequence and the slot of its state, with range checks. An entry out of range raises a fault and is
// treated as padding.
#pragma once
#include "smxx/floats.cuh"
#include "smxx/linear/args.h"

struct Span {
    i32 first; // first entry in the row list
    i32 rows;
    i32 slot; // slot of the state; negative: the sequence is padding
    bool begins;
    i32 held;   // number of earlier rows of the sequence that were held back
    bool holds; // the rows of this pass are held back
};

DEVICE Span span_at(const SequencesView& v, i32 sequence) {
    const i32* s = v.spans + 6 * static_cast<i64>(sequence);
    Span x{s[0], s[1], s[2], s[3] != 0, s[4], s[5] != 0};
    if (x.rows < 0 || x.first < 0 || x.first > v.count - x.rows) {
        raise_fault(v.faults, kFaultRow);
        x.first = x.rows = 0;
    }
    if (x.slot >= v.slots || x.held < 0 || x.held > v.held || (x.holds && x.rows > v.held)) {
        raise_fault(v.faults, kFaultRow);
        x.slot = -1;
    }
    return x;
}

// Returns the row number in the pass of row i of a sequence, or -1.
DEVICE i32 row_at(const SequencesView& v, const Span& s, i32 i) {
    const i32 row = v.rows[s.first + i];
    if (row >= 0 && row < v.count) return row;
    raise_fault(v.faults, kFaultRow);
    return -1;
}

// Returns the snapshot slot in which the state after a row is also saved, or -1.
DEVICE i32 snapshot_at(const SequencesView& v, i32 row) {
    const i32 at = v.snapshots[row];
    if (at < v.kept) return at;
    raise_fault(v.faults, kFaultRow);
    return -1;
}

// Returns the sequence that contains entry i of the row list. The spans of sequences are consecutive.
DEVICE i32 sequence_of(const SequencesView& v, i32 i) {
    i32 low = 0, high = v.sequences - 1;
    while (low < high) {
        const i32 mid = (low + high + 1) >> 1;
        if (v.spans[6 * static_cast<i64>(mid)] <= i) low = mid;
        else high = mid - 1;
    }
    return low;
}

// Returns four bf16 values from 8 bytes as float32.
DEVICE float4 widen_bf16x4(uint2 v) {
    return make_float4(bf16_low(v.x), bf16_high(v.x), bf16_low(v.y), bf16_high(v.y));
}
DEVICE float4 load_bf16x4(const u16* p) { return widen_bf16x4(*reinterpret_cast<const uint2*>(p)); }
DEVICE void store_bf16x4(u16* p, float4 v) {
    *reinterpret_cast<uint2*>(p) = make_uint2(pack_bf16_fast(v.x, v.y), pack_bf16_fast(v.z, v.w));
}

// Hardware approximations, within a few units in the last place. Subnormal numbers count as zero.
constexpr f32 kLog2E = 1.4426950408889634f;
DEVICE f32 power_of_two(f32 x) {
    f32 r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
DEVICE f32 inverse_of(f32 x) {
    f32 r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
DEVICE f32 inverse_root_of(f32 x) {
    f32 r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
// Returns 1 / (1 + 2^-x).
DEVICE f32 sigmoid_of_power(f32 x) { return inverse_of(__fadd_rn(1.0f, power_of_two(-x))); }
// Returns 1 / (1 + exp(-x)).
DEVICE f32 fast_sigmoid(f32 x) { return sigmoid_of_power(__fmul_rn(x, kLog2E)); }
