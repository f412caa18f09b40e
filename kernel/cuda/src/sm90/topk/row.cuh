// Rows as the top-k kernels read them, and the output for a row.
#pragma once

#include "sm90/topk/args.h"
#include "sm90/topk/keys.cuh"

namespace sparrow_topk {

// One row, or one part of a row. `head` scores of the previous row or part come first, because loads are 16 bytes wide.
struct Row {
    const float* scores;  // 16-byte aligned
    i32 length;           // candidates
    i32 head;             // scores before the first candidate, 0 to 3
    i32 number;           // number of the row, independent of the part
    i32 first;            // position of the first candidate
    bool whole;           // the row has at most k candidates, so all are selected without reading their scores

    __device__ __forceinline__ i32 end() const { return head + length; }
};

// Where row v is: the number of the row, the position of its first candidate, and its length and start as loaded.
struct RowFacts {
    i32 number, first;
    bool parted;
    i32 length, start;
};

__device__ __forceinline__ RowFacts facts_of(const TopKArgs& args, i32 v) {
    RowFacts f{v, 0, args.parts > 1 && !args.via, 0, 0};
    if (f.parted) {
        f.number = v / args.parts;
        f.first = (v - f.number * args.parts) * args.part;
    }
    f.start = (args.starts && !args.via ? args.starts[f.number] : 0);
    f.length = args.lengths[f.number];
    return f;
}

__device__ __forceinline__ Row row_from(const TopKArgs& args, const RowFacts& facts) {
    const bool parted = facts.parted;
    const i32 number = facts.number, first = facts.first;
    const i32 start = facts.start + first;
    const i32 head = start & 3;
    const i32 length = args.columns > 0 ? min(facts.length, args.columns) : facts.length;
    Row w{args.scores + number * args.stride + (start - head), max(length - first, 0), head, number, first, false};
    if (parted) {
        w.length = min(w.length, args.part);
    }
    w.whole = w.length <= args.k;
    if (args.via && !w.whole) {
        w.length = args.parts * args.k;
    }
    return w;
}

__device__ __forceinline__ Row row_of(const TopKArgs& args, i32 v) {
    return row_from(args, facts_of(args, v));
}

// Returns the page table of a row.
__device__ __forceinline__ const i32* table_of(const TopKArgs& args, const Row& w) {
    return args.page_table + w.number / args.rows_per_request * args.table_stride;
}

// Returns the value that is written for candidate `i` of a row.
__device__ __forceinline__ i32 transformed(const TopKArgs& args, const Row& w, i32 i) {
    i32 position = i + w.first;
    if (args.via && !w.whole) {
        position = args.via[static_cast<i64>(w.number) * w.length + i];
    }
    switch (args.transform) {
    case kTopKPaged:
        return table_of(args, w)[position >> args.page_shift] << args.page_shift | (
            position & ((1 << args.page_shift) - 1));
    case kTopKRagged:
        return position + args.offsets[w.number];
    default:
        return position;
    }
}

// Pads row v with -1 after `written` entries and stores their number in counts.
template <int Threads>
__device__ __forceinline__ void finish_row(const TopKArgs& args, i32 v, u32 written, u32 thread = threadIdx.x) {
    const i64 to = static_cast<i64>(v) * args.k;
    for (u32 i = written + thread; i < static_cast<u32>(args.k); i += Threads) {
        args.out[to + i] = -1;
        if (args.kept) {
            args.kept[to + i] = minus_inf();
        }
    }
    if (args.counts && thread == 0) {
        args.counts[v] = written;
    }
}

// Writes a row of which all positions are selected.
template <int Threads>
__device__ __forceinline__ void write_whole(const TopKArgs& args, i32 v, const Row& w, u32 thread = threadIdx.x) {
    const i64 to = static_cast<i64>(v) * args.k;
    for (i32 i = thread; i < w.length; i += Threads) {
        args.out[to + i] = transformed(args, w, i);
        if (args.kept) {
            args.kept[to + i] = w.scores[w.head + i];
        }
    }
    finish_row<Threads>(args, v, w.length, thread);
}

}  // namespace sparrow_topk
