// Sparse attention, portable kernels: 64 or 32 heads of a query row over one segment of its selected keys, or of all
// keys of its sequence (arguments: sm90/sparse/args.h).
//
// Block:  A warp for every 8 heads. 32 keys at a time are in shared memory as 16-bit rows, in two tiles that alternate.
//         Scores: a warp computes 16 heads by 32 keys over half of the columns. The queries of these columns stay in
//         its registers. The two warps of 16 heads exchange half of their sums, so that each has 8 heads. A lane has 8
//         keys of a head. Output: a warp has all heads and 64 columns, or 128 columns if there are 32 heads.
// Phases: The output of the previous keys. Then the scores and softmax weights of the present keys, while the next rows
//         are copied to the tile of the previous ones. Then the next rows are converted to 16 bits in place.
// Bits:   Sums do not depend on the number of heads of a block. Blocks of 32 keys are processed in order, independently
//         of the rest of the launch. args defines where segments begin, and a second kernel combines the segments in
//         order.
// Bytes:  A row of keys is read once for the heads of a block.
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

template <class Rows, int Heads>
struct SparseStorage {
    static constexpr int Warps = Heads / 8, Threads = 32 * Warps;
    static constexpr u32 Pitch = kPitchOf<Rows>;
    static constexpr u32 WeightPitch = kUnitKeys * 2 + 16;
    u8 keys[2][kUnitKeys * Pitch];  // at first both hold the queries
    u8 weights[Heads * WeightPitch];
    float4 sums[Warps][2][32];  // sums of each warp for the warp with the other columns
    float factor[Heads];
    float final[Heads];  // largest score, and at last the factor of the output
    u32 valid[2][kUnitKeys];
    static_assert(Heads <= 2 * kUnitKeys, "queries lie where keys do");
};

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

// Every: rows attend to all keys of their sequences (kernel/cuda/latent.go). The lists are then page tables, and a page
// has 64 keys, which is one block of a segment. The second stream has no keys; its lens hold the page-table number of
// each row. The segments of a row have about equal lengths, which depend only on the length of the row.
template <class Rows, bool Every, int Heads>
__device__ __forceinline__ void attend_selected(const SparseAttendArgs& args) {
    using Shared = SparseStorage<Rows, Heads>;
    constexpr int kThreads = Shared::Threads, kHeadTiles = Heads / 16;
    // Tiles of 8 columns of a warp, and rows of a block of keys that a thread helps to copy.
    constexpr int kColumnTiles = kValues / Shared::Warps / 8, kOwn = kUnitKeys / (kThreads / kRowThreads);
    constexpr u32 kPitch = Shared::Pitch;
    // Matrix steps of a warp: half of 512 columns, and of the 64 rotary columns if there are any.
    constexpr int kSteps = Rows::D / 32, kLatentSteps = 16;
    static_assert(Rows::D == 512 || Rows::D == 576, "other rows than these");
    extern __shared__ __align__(128) u8 dynamic_shared[];
    Shared& shared = *reinterpret_cast<Shared*>(dynamic_shared);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
    const u32 tiles = shared_address(shared.keys);
    const auto tile = [&](u32 side) { return tiles + side * (kUnitKeys * kPitch); };
    const u32 p = shared_address(shared.weights);

    // The order of units: head groups of a row first, then segments, then rows.
    const u32 groups = (args.heads + Heads - 1) / Heads;
    const u32 unit = blockIdx.x;
    const i32 head = static_cast<i32>(unit % groups) * Heads;
    const i32 segment = static_cast<i32>(unit / groups % args.segments);
    const i32 row = static_cast<i32>(unit / groups / args.segments);
    const i32 first_len = selected(args.streams[0], row);
    const i32 second_len = Rows::kTwoStreams ? selected(args.streams[1], row) : 0;
    const i32 first_blocks = segment_blocks_of(first_len), all = first_blocks + segment_blocks_of(second_len);
    i32 each = args.segment_blocks;
    if constexpr (Every) {
        const i32 segments = max((all + each - 1) / each, 1);
        each = (all + segments - 1) / segments;
    }
    const i32 begin = 2 * segment * each;  // block of 32 keys
    const i32 end = 2 * min((segment + 1) * each, all);
    if (begin >= end && args.segments > 1) {
        return;  // the combine kernel does not read segments without keys
    }

    // Eight threads share a row of a block of keys: this thread's rows are own + i * kThreads / 8.
    const u32 own = threadIdx.x / kRowThreads, e = threadIdx.x % kRowThreads;
    const i32 list = Every ? args.streams[1].lens[row * args.streams[1].len_stride] : row;
    const auto second = [&](i32 block) { return Rows::kTwoStreams && block >= 2 * first_blocks; };
    // Returns the list entry of this thread's key in a block, or a negative number if there is no key. The entry is
    // loaded one block before it is used, to hide the latency.
    const auto entry_of = [&](i32 block, int i) {
        const SelectionView& s = args.streams[second(block) ? 1 : 0];
        const i32 position = (second(block) ? block - 2 * first_blocks : block) * kUnitKeys +
                             static_cast<i32>(own) + i * (kThreads / static_cast<i32>(kRowThreads));
        if (block >= end || position >= (second(block) ? second_len : first_len)) {
            return -1;
        }
        return s.indices[static_cast<i64>(list) * s.index_stride + (Every ? position / kSegmentKeys : position)];
    };
    const auto slot_of = [&](i32 block, int i, i32 entry) {
        if (Every && entry >= 0) {  // entry is a page; its keys are consecutive slots
            const i32 key = block % 2 * kUnitKeys + static_cast<i32>(own) +
                            i * (kThreads / static_cast<i32>(kRowThreads));
            entry = entry > 0x1FFFFFF ? 0x7FFFFFFF : entry * kSegmentKeys + key;
        }
        if (entry >= args.streams[second(block) ? 1 : 0].slots) {
            raise_fault(args.faults, kFaultSlot);
            return -1;
        }
        return entry;
    };
    // The queries are copied to the tiles first.
    const u32 half = warp / kHeadTiles, warp_head = warp % kHeadTiles * 16;
    for (u32 i = threadIdx.x; i < Heads * (Rows::D / 8); i += kThreads) {
        const u32 h = i / (Rows::D / 8), c = i % (Rows::D / 8);
        const i64 at = row * args.q_stride + static_cast<i64>(head + h) * Rows::D + c * 8;
        copy_16(tiles + h * kPitch + c * 16, args.q + at, head + static_cast<i32>(h) < args.heads);
    }
    copies_commit();

    // Issues the copies of the rows of a block, whose list entries are in entry.
    i32 entry[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        entry[i] = entry_of(begin, i);
    }
    const auto fetch = [&](i32 block, u32 side) {
        const SelectionView& s = args.streams[second(block) ? 1 : 0];
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            const u32 key = own + i * (kThreads / kRowThreads);
            const i32 slot = slot_of(block, i, entry[i]);
            const u32 at = static_cast<u32>(max(slot, 0));
            const u8* page = s.base + static_cast<i64>(at >> s.page_shift) * s.page_bytes;
            const i64 in_page = at & s.page_mask;
            copy_row<Rows>(tile(side) + key * kPitch + kStoredAt<Rows>, page + in_page * Rows::kRowBytes,
                           page + s.scales + in_page * 8, e, slot >= 0);
            if (e == 0) {
                shared.valid[side][key] = slot >= 0;
            }
            entry[i] = entry_of(block + 1, i);
        }
        copies_commit();
    };
    const auto convert = [&](u32 side) {
        copies_wait<0>();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            const u32 to = tile(side) + (own + i * (kThreads / kRowThreads)) * kPitch;
            Rows::convert(to, to + kStoredAt<Rows>, e);
        }
    };

    // The byte in a row of step i of this warp.
    const auto column = [&](int i) {
        return (i < kLatentSteps ? kLatentSteps * half + i : kLatentSteps + 2 * half + i) * 32;
    };
    copies_wait<0>();
    __syncthreads();  // the queries have arrived
    u32 q[kSteps][4];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
        load_matrices(q[i], tiles + (warp_head + lane % 16) * kPitch + column(i) + lane / 16 * 16);
        if (Rows::kHalves && (i < kLatentSteps || Rows::HalfSteps > 2 * kLatentSteps)) {  // the type of the keys
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                q[i][j] = half_pair(bf16_low(q[i][j]), bf16_high(q[i][j]));
            }
        }
    }
    const u32 own_head = warp_head + 8 * half + group;  // the head of this lane's softmax
    float m = kLowest, sum = 0.0f;                      // base of the exponents, sum of this lane
    if (quad == 0) {
        shared.final[own_head] = kLowest;
    }
    float o[kHeadTiles][kColumnTiles][4] = {};

    // Adds the product of weights and values of a block of keys: all heads, and the columns of this warp.
    const auto add_values = [&](u32 k) {
        float f[2 * kHeadTiles];
        bool scaled = false;
#pragma unroll
        for (int i = 0; i < 2 * kHeadTiles; ++i) {
            f[i] = shared.factor[group + 8 * i];
            scaled = scaled || f[i] != 1.0f;
        }
        if (__any_sync(ptx::kFullMask, scaled)) {
#pragma unroll
            for (int i = 0; i < kHeadTiles * kColumnTiles * 4; ++i) {
                const int t = i / (4 * kColumnTiles);
                o[t][i / 4 % kColumnTiles][i % 4] *= f[t * 2 + i % 4 / 2];
            }
        }
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            u32 a[kHeadTiles][4];
#pragma unroll
            for (int t = 0; t < kHeadTiles; ++t) {
                load_matrices(a[t], p + (t * 16 + lane % 16) * Shared::WeightPitch + step * 32 + lane / 16 * 16);
            }
#pragma unroll
            for (int n = 0; n < kColumnTiles; n += 2) {
                u32 b[4];
                load_turned(b, k + (16 * step + lane % 16) * kPitch + (kColumnTiles * warp + n) * 16 + lane / 16 * 16);
                const u32 low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
                for (int t = 0; t < kHeadTiles; ++t) {
                    if constexpr (Rows::kHalves) {
                        multiply_f16(o[t][n], a[t], low);
                        multiply_f16(o[t][n + 1], a[t], high);
                    } else {
                        multiply_bf16(o[t][n], a[t], low);
                        multiply_bf16(o[t][n + 1], a[t], high);
                    }
                }
            }
        }
    };

    // Computes the scores and weights of a block of keys.
    const auto add_weights = [&](u32 side) {
        float s[4][4] = {};  // scores of 16 heads and 32 keys over half of the columns
        const u32 from = tile(side) + (lane % 8 + lane / 16 * 8) * kPitch + lane / 8 % 2 * 16;
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
#pragma unroll
            for (int n = 0; n < 4; n += 2) {
                u32 b[4];
                load_matrices(b, from + 8 * n * kPitch + column(i));
                const u32 low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
                if constexpr (Rows::kHalves) {
                    if (i < kLatentSteps || Rows::HalfSteps > 2 * kLatentSteps) {
                        multiply_f16(s[n], q[i], low);
                        multiply_f16(s[n + 1], q[i], high);
                        continue;
                    }
                }
                multiply_bf16(s[n], q[i], low);
                multiply_bf16(s[n + 1], q[i], high);
            }
        }

        // The warp keeps the sums of eight heads and sends the others to the warp with the other columns.
        float x[8];
        shared.sums[warp][0][lane] = half == 0 ? make_float4(s[0][2], s[0][3], s[1][2], s[1][3])
                                               : make_float4(s[0][0], s[0][1], s[1][0], s[1][1]);
        shared.sums[warp][1][lane] = half == 0 ? make_float4(s[2][2], s[2][3], s[3][2], s[3][3])
                                               : make_float4(s[2][0], s[2][1], s[3][0], s[3][1]);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            x[i] = half == 0 ? s[i / 2][i % 2] : s[i / 2][i % 2 + 2];
        }
        asm volatile("bar.sync %0, 64;" ::"r"(1 + warp % kHeadTiles) : "memory");
        const float4 others[2] = {shared.sums[warp ^ kHeadTiles][0][lane], shared.sums[warp ^ kHeadTiles][1][lane]};
        const float* other = reinterpret_cast<const float*>(others);
        float high = __int_as_float(0xFF800000);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const bool counts = shared.valid[side][i / 2 * 8 + 2 * quad + i % 2] != 0;
            x[i] = counts ? (x[i] + other[i]) * args.score_scale : __int_as_float(0xFF800000);
            high = fmaxf(high, x[i]);
        }
        high = fmaxf(high, __shfl_xor_sync(ptx::kFullMask, high, 1));
        high = fmaxf(high, __shfl_xor_sync(ptx::kFullMask, high, 2));
        const float base = high > m + kSlack ? high : m, f = exp2_fast(m - base);
        m = base;
        sum *= f;
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
            const float w[2] = {exp2_fast(x[i] - base), exp2_fast(x[i + 1] - base)};
            sum += w[0] + w[1];
            const u32 bits = Rows::kHalves ? half_pair(w[0], w[1]) : pack_bf16_fast(w[0], w[1]);
            *reinterpret_cast<u32*>(shared.weights + own_head * Shared::WeightPitch + 8 * i + 4 * quad) = bits;
        }
        if (quad == 0) {
            shared.factor[own_head] = f;
            shared.final[own_head] = fmaxf(shared.final[own_head], high);
        }
    };

    // A turn adds the values of the block before `block`, computes the weights of `block`, and converts the rows of the
    // block after it. The first turn and the last one have no `block`.
    for (i32 block = begin - 1; block <= end; ++block) {
        const u32 side = block & 1;  // begin is even
        if (block > begin) {
            add_values(tile(side ^ 1));
        }
        __syncthreads();  // all warps have read the previous keys and weights, and at first the queries
        const bool more = block + 1 < end;
        if (more) {
            fetch(block + 1, side ^ 1);
        }
        if (block >= begin && block < end) {
            add_weights(side);
        }
        if (more) {
            convert(side ^ 1);
        }
        __syncthreads();
    }

    sum += __shfl_xor_sync(ptx::kFullMask, sum, 1);
    sum += __shfl_xor_sync(ptx::kFullMask, sum, 2);
    if (quad == 0) {
        const i32 h = static_cast<i32>(own_head);
        const float largest = shared.final[h];
        float factor = 0.0f;
        if (head + h < args.heads) {
            if (args.segments == 1) {
                factor = final_factor(args, head + h, m, sum);
                write_stats(args, row, head + h, m, largest, sum);
            } else {
                factor = sum > 0.0f ? 1.0f / sum : 0.0f;
                const i64 at = (static_cast<i64>(row) * args.segments + segment) * args.heads + head + h;
                reinterpret_cast<float4*>(args.stats)[at] = make_float4(m, sum, largest, 0.0f);
            }
        }
        shared.final[h] = factor;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2 * kHeadTiles; ++i) {
        const i32 h = 8 * i + static_cast<i32>(group);
        if (head + h >= args.heads) {
            continue;
        }
        const float f = shared.final[h];
        const i32 column = 8 * kColumnTiles * static_cast<i32>(warp) + 2 * static_cast<i32>(quad);
        u16* const out = args.out + row * args.out_stride + static_cast<i64>(head + h) * kValues + column;
        const i64 part = part_at(args, row, segment, head + h) + column;
#pragma unroll
        for (int n = 0; n < kColumnTiles; ++n) {
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

// Combines the segments of a row. A thread block of 128 threads has one head; a thread has four columns.
constexpr int kCombineThreads = 128;

template <bool Halves>
__device__ __forceinline__ void combine_segments(const SparseAttendArgs& args) {
    const i32 head = static_cast<i32>(blockIdx.x % args.heads), row = static_cast<i32>(blockIdx.x / args.heads);
    const i32 blocks =
        segment_blocks_of(selected(args.streams[0], row)) + segment_blocks_of(selected(args.streams[1], row));
    const i32 live = min((blocks + args.segment_blocks - 1) / args.segment_blocks, args.segments);
    const float4* stats =
        reinterpret_cast<const float4*>(args.stats) + static_cast<i64>(row) * args.segments * args.heads + head;
    float base = kLowest, largest = kLowest, sum = 0.0f, o[4] = {};
    for (i32 s = 0; s < live; ++s) {
        const float4 v = stats[static_cast<i64>(s) * args.heads];
        base = fmaxf(base, v.x);
        largest = fmaxf(largest, v.z);
    }
    for (i32 s = 0; s < live; ++s) {
        const float4 v = stats[static_cast<i64>(s) * args.heads];
        const float weight = exp2_fast(v.x - base) * v.y;
        sum += weight;
        const i64 at = part_at(args, row, s, head) + 4 * threadIdx.x;
        float x[4];
        if constexpr (Halves) {
            const uint2 pair = *reinterpret_cast<const uint2*>(static_cast<const u16*>(args.partial) + at);
            asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
                : "=f"(x[0]), "=f"(x[1]) : "r"(pair.x));
            asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
                : "=f"(x[2]), "=f"(x[3]) : "r"(pair.y));
        } else {
            const float4 f = *reinterpret_cast<const float4*>(static_cast<const float*>(args.partial) + at);
            x[0] = f.x, x[1] = f.y, x[2] = f.z, x[3] = f.w;
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            o[i] = fmaf(x[i], weight, o[i]);
        }
    }
    const float f = final_factor(args, head, base, sum);
    *reinterpret_cast<uint2*>(args.out + row * args.out_stride + static_cast<i64>(head) * kValues + 4 * threadIdx.x) =
        make_uint2(pack_bf16_fast(o[0] * f, o[1] * f), pack_bf16_fast(o[2] * f, o[3] * f));
    if (threadIdx.x == 0) {
        write_stats(args, row, head, base, largest, sum);
    }
}

}  // namespace portable

// Defines a kernel. With 32 heads a block uses half of the registers of a multiprocessor.
#define PORTABLE_ATTEND(name, rows, every, heads)                                                            \
    extern "C" __global__ void __launch_bounds__(4 * heads, 64 / heads)                                      \
        name(const __grid_constant__ SparseAttendArgs args) {                                                \
        portable::attend_selected<rows, every, heads>(args);                                                 \
    }                                                                                                        \
    extern "C" __device__ const u32 name##_shared = sizeof(portable::SparseStorage<rows, heads>);
#define PORTABLE_SPARSE(name, rows) PORTABLE_ATTEND(name, rows, false, 32)
#define PORTABLE_LATENT(name, rows) PORTABLE_ATTEND(name, rows, true, 32)
#define PORTABLE_WIDE(name, rows) PORTABLE_ATTEND(name##_wide, rows, false, 64)
