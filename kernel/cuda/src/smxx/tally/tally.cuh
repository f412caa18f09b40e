// Counts expert choices: counts[ids[t, j]] is incremented for every choice of a row that is not padding. Counters
// wrap around. An id out of range raises a fault and is not counted.
//
// Block: 256 choices, one per thread, with one atomic addition to L2 each. Integer sums do not depend on their
//        order.
// Bytes: 8 for each choice.
#pragma once
#include "smxx/floats.cuh"
#include "smxx/tally/args.h"

DEVICE void tally_body(const TallyArgs& a) {
    begin_after_previous();
    const i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= static_cast<i64>(a.rows) * a.top) return;
    const i64 row = i / a.top;
    if (a.seen[row * a.seen_stride] <= 0) return;
    const i32 id = a.ids[row * a.id_stride + i % a.top];
    if (id < 0 || id >= a.experts) {
        raise_fault(a.faults, kFaultExpert);
        return;
    }
    atomicAdd(a.counts + id, 1u);
}
