// Compresses groups of tokens into entries. Each channel of an entry is a sum of values over its slots, weighted by
// the softmax of gate + ape. A slot without a source is not included; an entry without any source is zero. A source
// out of range raises a fault and is not included.
//
// Block: 256 channels of one entry, one per thread. The source numbers are first loaded into shared memory, so that
//        reads of different slots do not depend on each other. Most entries of a decode step have no source and end
//        here. Slots are read twice, for the largest gate and for the sum; the second read hits the cache. Sums are
//        float32 in the order of slots, so rows from this pass and from the saved state give the same bits.
// Bytes: halves * ratio slots of 8 bytes for each channel, and ape.
#pragma once
#include "smxx/compress/args.h"
#include "smxx/floats.cuh"

// Value and gate of one channel of a source; null pointers mean that there is no source.
struct Slot {
    const f32* value;
    const f32* gate;
    const f32* ape;
};

DEVICE Slot slot_at(const CompressArgs& a, const i32* sources, i32 s, i32 channel) {
    // own is the half of the source row that a slot uses: 1 for slots at or beyond ratio, which exist only with two
    // halves.
    const i32 source = sources[s], own = s >= a.ratio;
    const i64 at = own * static_cast<i64>(a.columns) + channel;
    const f32* ape = a.ape + (s - own * a.ratio) * a.ape_stride + at;
    if (source >= 0 && source < a.rows) {
        return {a.values + source * a.value_stride + at, a.gates + source * a.gate_stride + at, ape};
    }
    const i32 kept = -2 - source;
    if (kept >= 0 && kept < a.state_rows) {
        const f32* row = a.state + kept * a.state_stride + at;
        return {row, row + a.halves * static_cast<i64>(a.columns), ape};
    }
    if (source != -1) raise_fault(a.faults, kFaultRow);
    return {nullptr, nullptr, nullptr};
}

// Maximum sources in shared memory; the sources of an entry with more are read from global memory.
constexpr i32 kSharedSources = 512;

// Computes 256 channels of an entry, starting at channel 256 * part.
DEVICE void compress_body(const CompressArgs& a, i64 entry, i32 part) {
    __shared__ i32 near[kSharedSources];
    begin_after_previous();
    const i32 channel = part * kThreads + threadIdx.x;
    const i32* sources = a.sources + entry * a.source_stride;
    const i32 slots = a.halves * a.ratio;
    bool some = false;
    for (i32 s = threadIdx.x; s < slots; s += kThreads) {
        const i32 source = sources[s];
        some = some || source != -1;
        if (s < kSharedSources) near[s] = source;
    }
    some = __syncthreads_or(some);
    if (channel >= a.columns) return;
    if (!some) {
        a.out[entry * a.out_stride + channel] = 0;
        return;
    }
    if (slots <= kSharedSources) sources = near;
    f32 most = __int_as_float(0xFF800000); // largest gate, initially minus infinity
#pragma unroll 8
    for (i32 s = 0; s < slots; s++) {
        const Slot x = slot_at(a, sources, s, channel);
        if (x.value != nullptr) most = fmaxf(most, __fadd_rn(*x.gate, *x.ape));
    }
    f32 sum = 0, total = 0;
#pragma unroll 8
    for (i32 s = 0; s < slots; s++) {
        const Slot x = slot_at(a, sources, s, channel);
        if (x.value == nullptr) continue;
        const f32 weight = expf(__fadd_rn(*x.gate, *x.ape) - most);
        total = __fadd_rn(total, weight);
        sum = __fmaf_rn(weight, *x.value, sum);
    }
    a.out[entry * a.out_stride + channel] = static_cast<u16>(bf16_bits(total > 0 ? __fdiv_rn(sum, total) : 0.0f));
}
