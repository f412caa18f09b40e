// Parts of the portable kernels of sparse attention: the keys of a unit of work, softmax weights, and results.
#pragma once

#include "sm80/sparse/rows.cuh"

namespace portable {

// Keys that are processed together, and keys per block in args.segment_blocks.
constexpr i32 kUnitKeys = 32, kSegmentKeys = 64;
constexpr i32 kPadHeads = 64;  // the heads of a row of partial results are padded to a multiple of this
constexpr int kValues = 512;
constexpr float kLn2 = 0.693147180559945309f, kLog2e = 1.44269504088896341f;
constexpr float kLowest = -1e30f;  // finite, so that a block without a valid key does not give NaN

__device__ __forceinline__ float exp2_fast(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

// The base of the exponents of a head is raised only when a score exceeds it by more than this. A weight is then at
// most 2^kSlack, and the output is rarely multiplied by a factor.
constexpr float kSlack = 8.0f;

__device__ __forceinline__ i32 selected(const SelectionView& s, i32 row) {
    return s.width == 0 ? 0 : max(min(s.lens[row * s.len_stride], s.width), 0);
}
__device__ __forceinline__ i32 segment_blocks_of(i32 keys) { return (keys + kSegmentKeys - 1) / kSegmentKeys; }

// Writes the log-sum-exp and the largest score of a row and head. sum is relative to m.
__device__ __forceinline__ void write_stats(const SparseAttendArgs& args, i32 row, i32 head, float m, float largest,
                                            float sum) {
    const float infinity = __int_as_float(0x7F800000);
    if (args.lse != nullptr) {
        args.lse[row * args.lse_stride + head] = sum > 0.0f ? logf(sum) + m * kLn2 : infinity;
    }
    if (args.max != nullptr) {
        args.max[row * args.max_stride + head] = sum > 0.0f ? largest * kLn2 : -infinity;
    }
}

// Returns the final factor of the output of a head: value scale / (sum including the sink). m is the base of sum.
__device__ __forceinline__ float final_factor(const SparseAttendArgs& args, i32 head, float m, float sum) {
    const float sink = args.sinks != nullptr ? args.sinks[head] * kLog2e : __int_as_float(0xFF800000);
    return sum > 0.0f ? args.value_scale / (sum + exp2_fast(sink - m)) : 0.0f;
}

// Returns the index of the first element of a head's row of a partial result.
__device__ __forceinline__ i64 part_at(const SparseAttendArgs& args, i32 row, i32 segment, i32 head) {
    const i64 heads = (args.heads + kPadHeads - 1) / kPadHeads * kPadHeads;
    return ((static_cast<i64>(row) * args.segments + segment) * heads + head) * kValues;
}

// The keys of a unit of work: a segment of the keys of a row. Blocks of 32 keys have the numbers begin to end - 1.
//
// Every: rows attend to all keys of their sequences (kernel/cuda/latent.go). The lists are then page tables, and a page
// has 64 keys, which is one block of a segment. The second stream has no keys; its lens hold the page-table number of
// each row. The segments of a row have about equal lengths, which depend only on the length of the row.
template <class Rows, bool Every>
struct SegmentKeys {
    const SparseAttendArgs& args;
    i32 list, first_len, second_len, first_blocks, begin, end;

    __device__ __forceinline__ SegmentKeys(const SparseAttendArgs& args, i32 row, i32 segment) : args(args) {
        first_len = selected(args.streams[0], row);
        second_len = Rows::kTwoStreams ? selected(args.streams[1], row) : 0;
        first_blocks = segment_blocks_of(first_len);
        const i32 all = first_blocks + segment_blocks_of(second_len);
        i32 each = args.segment_blocks;
        if constexpr (Every) {
            const i32 segments = max((all + each - 1) / each, 1);
            each = (all + segments - 1) / segments;
        }
        begin = 2 * segment * each;
        end = 2 * min((segment + 1) * each, all);
        list = Every ? args.streams[1].lens[row * args.streams[1].len_stride] : row;
    }
    __device__ __forceinline__ bool second(i32 block) const { return Rows::kTwoStreams && block >= 2 * first_blocks; }

    // Returns the list entry of a key in a block, or a negative number if there is no key. The entry is loaded one
    // block before it is used, to hide the latency.
    __device__ __forceinline__ i32 entry(i32 block, i32 key) const {
        const SelectionView& s = args.streams[second(block) ? 1 : 0];
        const i32 position = (second(block) ? block - 2 * first_blocks : block) * kUnitKeys + key;
        if (block >= end || position >= (second(block) ? second_len : first_len)) {
            return -1;
        }
        return s.indices[static_cast<i64>(list) * s.index_stride + (Every ? position / kSegmentKeys : position)];
    }
    // Issues the copy of the row of a key to address `to`, for thread e of the row. Returns whether there is a row.
    __device__ __forceinline__ bool copy(u32 to, i32 block, i32 key, i32 entry, u32 e) const {
        const SelectionView& s = args.streams[second(block) ? 1 : 0];
        i32 slot = entry;
        if (Every && entry >= 0) {  // entry is a page; its keys are consecutive slots
            slot = entry > 0x1FFFFFF ? 0x7FFFFFFF : entry * kSegmentKeys + block % 2 * kUnitKeys + key;
        }
        if (slot >= s.slots) {
            raise_fault(args.faults, kFaultSlot);
            slot = -1;
        }
        const u32 at = static_cast<u32>(max(slot, 0));
        const u8* page = s.base + static_cast<i64>(at >> s.page_shift) * s.page_bytes;
        const i64 in_page = at & s.page_mask;
        copy_row<Rows>(to, page + in_page * Rows::kRowBytes, page + s.scales + in_page * 8, e, slot >= 0);
        return slot >= 0;
    }
};

// The softmax of a head so far: the base of the exponents, and the sum of this lane.
struct HeadSum {
    float m = kLowest, sum = 0.0f;
};

// Computes the weights of a block of keys for one head. x holds the scores of this lane's eight keys, 8 i + 2 quad and
// the next, over half of the columns, and other those over the other half. Writes the weights, the factor of the output
// so far, and the largest score so far.
template <class Rows>
__device__ __forceinline__ void weigh(const SparseAttendArgs& args, const u32* valid, float (&x)[8], const float* other,
                                      u32 quad, u8* weights, float* factor, float* largest, HeadSum& head) {
    float high = __int_as_float(0xFF800000);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const bool counts = valid[i / 2 * 8 + 2 * quad + i % 2] != 0;
        x[i] = counts ? (x[i] + other[i]) * args.score_scale : __int_as_float(0xFF800000);
        high = fmaxf(high, x[i]);
    }
    high = fmaxf(high, __shfl_xor_sync(ptx::kFullMask, high, 1));
    high = fmaxf(high, __shfl_xor_sync(ptx::kFullMask, high, 2));
    const float base = high > head.m + kSlack ? high : head.m, f = exp2_fast(head.m - base);
    head.m = base;
    head.sum *= f;
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
        const float w[2] = {exp2_fast(x[i] - base), exp2_fast(x[i + 1] - base)};
        head.sum += w[0] + w[1];
        *reinterpret_cast<u32*>(weights + 8 * i + 4 * quad) =
            Rows::kHalves ? half_pair(w[0], w[1]) : pack_bf16_fast(w[0], w[1]);
    }
    if (quad == 0) {
        *factor = f;
        *largest = fmaxf(*largest, high);
    }
}

// Multiplies the output by the factors of its heads, which are nearly always 1.
template <int HeadTiles, int ColumnTiles>
__device__ __forceinline__ void scale_output(const float* factor, u32 group, float (&o)[HeadTiles][ColumnTiles][4]) {
    float f[2 * HeadTiles];
    bool scaled = false;
#pragma unroll
    for (int i = 0; i < 2 * HeadTiles; ++i) {
        f[i] = factor[group + 8 * i];
        scaled = scaled || f[i] != 1.0f;
    }
    if (__any_sync(ptx::kFullMask, scaled)) {
#pragma unroll
        for (int i = 0; i < HeadTiles * ColumnTiles * 4; ++i) {
            const int t = i / (4 * ColumnTiles);
            o[t][i / 4 % ColumnTiles][i % 4] *= f[t * 2 + i % 4 / 2];
        }
    }
}

template <class Rows>
__device__ __forceinline__ void multiply_keys(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    if constexpr (Rows::kHalves) {
        multiply_f16(d, a, b);
    } else {
        multiply_bf16(d, a, b);
    }
}

// Writes the statistics of a head, from the lanes with quad 0, and stores the factor of its output. h is the head in
// the block, whose first head is `head`; final holds the largest score of each head.
__device__ __forceinline__ void finish_head(const SparseAttendArgs& args, i32 row, i32 segment, i32 head, i32 h,
                                            u32 quad, HeadSum own, float* final) {
    float sum = own.sum;
    sum += __shfl_xor_sync(ptx::kFullMask, sum, 1);
    sum += __shfl_xor_sync(ptx::kFullMask, sum, 2);
    if (quad != 0) {
        return;
    }
    float factor = 0.0f;
    if (head + h < args.heads) {
        if (args.segments == 1) {
            factor = final_factor(args, head + h, own.m, sum);
            write_stats(args, row, head + h, own.m, final[h], sum);
        } else {
            factor = sum > 0.0f ? 1.0f / sum : 0.0f;
            const i64 at = (static_cast<i64>(row) * args.segments + segment) * args.heads + head + h;
            reinterpret_cast<float4*>(args.stats)[at] = make_float4(own.m, sum, final[h], 0.0f);
        }
    }
    final[h] = factor;
}

// Writes the output of the heads of a block for the columns of warp `warp`: results, or partial results.
template <class Rows, int HeadTiles, int ColumnTiles>
__device__ __forceinline__ void write_output(const SparseAttendArgs& args, i32 row, i32 segment, i32 head, i32 warp,
                                             u32 group, u32 quad, const float* final,
                                             const float (&o)[HeadTiles][ColumnTiles][4]) {
#pragma unroll
    for (int i = 0; i < 2 * HeadTiles; ++i) {
        const i32 h = 8 * i + static_cast<i32>(group);
        if (head + h >= args.heads) {
            continue;
        }
        const float f = final[h];
        const i32 column = 8 * ColumnTiles * warp + 2 * static_cast<i32>(quad);
        u16* const out = args.out + row * args.out_stride + static_cast<i64>(head + h) * kValues + column;
        const i64 part = part_at(args, row, segment, head + h) + column;
#pragma unroll
        for (int n = 0; n < ColumnTiles; ++n) {
            const float x = o[i / 2][n][i % 2 * 2] * f, y = o[i / 2][n][i % 2 * 2 + 1] * f;
            if (args.segments == 1) {
                *reinterpret_cast<u32*>(out + 8 * n) = pack_bf16_fast(x, y);
            } else if constexpr (Rows::kHalves) {
                *reinterpret_cast<u32*>(static_cast<u16*>(args.partial) + part + 8 * n) = half_pair(x, y);
            } else {
                *reinterpret_cast<float2*>(static_cast<float*>(args.partial) + part + 8 * n) = make_float2(x, y);
            }
        }
    }
}

}  // namespace portable
