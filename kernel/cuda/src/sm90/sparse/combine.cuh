// Combines the segments of sparse attention: out = sum over segments of w_s * o_s / sum over segments of w_s, with
// w_s = 2^(m_s - M) * l_s.
//
// In:    partial results of the segments that have keys (Parts in output.cuh), stats f32 [rows, segments, heads, 4].
// Out:   bf16 [rows, heads * 512], lse, max.
// Block: 128 threads, one per lane that wrote the partial results; a block has two of the eighths (Parts) of 32 heads
//        and 256 columns. Segments are added in order, independently of the rest of the launch.
// Bytes: 1 KB (for bf16 rows 2 KB) per segment and head is read, 1 KB is written.
#pragma once

#include "sm90/sparse/output.cuh"

namespace sparrow_sparse {

constexpr int kCombineThreads = 128;
constexpr int kCombineEighths = 2;  // eighths per thread block
// Thread blocks for 64 heads of a row: 2 column halves, 2 row sets (row and row + 8), 8 eighths / kCombineEighths.
constexpr int kCombineBlocks = 2 * 2 * 8 / kCombineEighths;
constexpr int kCombineAtOnce = 4;   // segments whose loads are in flight at the same time

// Loads 16 bytes without cache hints, because another kernel has just written them.
__device__ __forceinline__ uint4 load_part(const u8* p) {
    uint4 v;
    asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}

__device__ __forceinline__ void add_halves(float* o, u32 pair, float weight) {
    float a, b;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }" : "=f"(a), "=f"(b) : "r"(pair));
    o[0] = fmaf(a, weight, o[0]);
    o[1] = fmaf(b, weight, o[1]);
}

// A lane's values of one eighth of a partial result: 8 columns of a head, in fp32 or in half precision.
template <class Type>
struct Eighth {
    static constexpr int kChunks = Parts<Type>::kChunks;
    uint4 chunk[kChunks];

    __device__ __forceinline__ void load(const u8* p) {
#pragma unroll
        for (int i = 0; i < kChunks; ++i) {
            chunk[i] = load_part(p + i * 128 * 16);
        }
    }
    __device__ __forceinline__ void add_to(float (&o)[8], float weight) const {
        if constexpr (kChunks == 2) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                o[i * 4] = fmaf(__uint_as_float(chunk[i].x), weight, o[i * 4]);
                o[i * 4 + 1] = fmaf(__uint_as_float(chunk[i].y), weight, o[i * 4 + 1]);
                o[i * 4 + 2] = fmaf(__uint_as_float(chunk[i].z), weight, o[i * 4 + 2]);
                o[i * 4 + 3] = fmaf(__uint_as_float(chunk[i].w), weight, o[i * 4 + 3]);
            }
        } else {
            add_halves(o, chunk[0].x, weight);
            add_halves(o + 2, chunk[0].y, weight);
            add_halves(o + 4, chunk[0].z, weight);
            add_halves(o + 6, chunk[0].w, weight);
        }
    }
};

// The partial results and statistics of kCombineAtOnce segments of a lane's head.
template <class Type>
struct Several {
    Eighth<Type> part[kCombineAtOnce][kCombineEighths];
    float4 stats[kCombineAtOnce];

    // Loads segments first, first + 1, ... below end, of the 64 heads from group * kHeads.
    __device__ __forceinline__ void load(const SparseAttendArgs& args, i32 row, i32 group, i32 side, i32 offset,
        const float4* of_head, i32 first, i32 end) {
#pragma unroll
        for (int i = 0; i < kCombineAtOnce; ++i) {
            if (first + i < end) {
                stats[i] = of_head[static_cast<i64>(first + i) * args.heads];
                const u8* from = Parts<Type>::at(args, row, first + i, group * kHeads, side * kHalfColumns) + offset;
#pragma unroll
                for (int e = 0; e < kCombineEighths; ++e) {
                    part[i][e].load(from + e * Parts<Type>::kEighthBytes);
                }
            }
        }
    }

    // Adds the first `count` loaded segments to o, and their weights to sum.
    __device__ __forceinline__ void add_to(float (&o)[kCombineEighths][8], float& sum, float largest,
        i32 count) const {
#pragma unroll
        for (int i = 0; i < kCombineAtOnce; ++i) {
            if (i < count) {
                const float weight = exp2_fast(stats[i].x - largest) * stats[i].y;
                sum += weight;
#pragma unroll
                for (int e = 0; e < kCombineEighths; ++e) {
                    part[i][e].add_to(o[e], weight);
                }
            }
        }
    }
};

// Combines the partial results of all segments of a row. Type is the type of the selected rows.
template <class Type>
__device__ __forceinline__ void combine(const SparseAttendArgs& args) {
    ptx::wait_for_previous_kernel();
    ptx::release_next_kernel();
    const u32 piece = blockIdx.x % kCombineBlocks, groups = head_groups(args);
    const i32 group = static_cast<i32>(blockIdx.x / kCombineBlocks % groups);
    const i32 row = static_cast<i32>(blockIdx.x / kCombineBlocks / groups);
    const i32 eighth = piece % (kCombineBlocks / 4) * kCombineEighths, half = piece / (kCombineBlocks / 4) % 2,
        side = piece / (kCombineBlocks / 2);
    const Corner at;
    const i32 head = group * kHeads + at.row + half * 8;
    const bool mine = head < args.heads;
    const float4* stats = reinterpret_cast<const float4*>(args.stats) + static_cast<i64>(row) * args.segments *
        args.heads + (mine ? head : 0);
    const i32 offset = (half * Parts<Type>::kEighths + eighth) * static_cast<i32>(Parts<Type>::kEighthBytes);
    // The first segments are loaded while the length of the row is loaded. Those that the row does not have are not
    // used.
    Several<Type> some;
    some.load(args, row, group, side, offset, stats, 0, args.segments);
    const i32 blocks = row_blocks(args, row);
    const i32 live = min((blocks + args.segment_blocks - 1) / args.segment_blocks, args.segments);
    float largest = kLowest, highest = kLowest;  // maximum over segments of the exponents' base, and of the scores
#pragma unroll
    for (int s = 0; s < kCombineAtOnce; ++s) {
        if (s < live) {
            largest = fmaxf(largest, some.stats[s].x);
            highest = fmaxf(highest, some.stats[s].z);
        }
    }
    for (i32 s = kCombineAtOnce; s < live; ++s) {
        const float4 v = stats[static_cast<i64>(s) * args.heads];
        largest = fmaxf(largest, v.x);
        highest = fmaxf(highest, v.z);
    }
    float sum = 0.0f;
    float o[kCombineEighths][8];
#pragma unroll
    for (int e = 0; e < kCombineEighths; ++e) {
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            o[e][k] = 0.0f;
        }
    }
    some.add_to(o, sum, largest, live);
    for (i32 s = kCombineAtOnce; s < live; s += kCombineAtOnce) {
        some.load(args, row, group, side, offset, stats, s, live);
        some.add_to(o, sum, largest, live - s);
    }
    const float f = final_factor(args, sink_of(args, head), largest, sum);
    const u32 q = at.lane % 4;
    u16* out = args.out + row * args.out_stride + static_cast<i64>(head) * kValues + side * kHalfColumns + eighth * 32 +
        q * 8;
#pragma unroll
    for (int e = 0; e < kCombineEighths; ++e) {
        u32 w[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            w[k] = ptx::Bf16::pack(o[e][k * 2] * f, o[e][k * 2 + 1] * f);
        }
        transpose_quad(w, q);
        if (mine) {
            *reinterpret_cast<uint4*>(out + e * 32) = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
    if (mine && q == 0 && side == 0 && eighth == 0) {
        write_stats(args, row, head, largest, highest, sum);
    }
}

}  // namespace sparrow_sparse
