// Sparse attention, portable kernels: 32 heads of a query row over one segment of its selected keys, or of all keys of
// its sequence (arguments: sm90/sparse/args.h).
//
// Block:  512 threads. 32 keys at a time are in shared memory as 16-bit rows, in two tiles that alternate. The rows of
//         the next keys are held in registers. Scores: a warp computes 16 keys by 16 heads over a quarter of the
//         columns, whose queries stay in its registers. The softmax adds the four quarters; for it a warp has 2 heads
//         and a lane has one key. Output: a warp has all heads and 32 columns.
// Phases: The matrix unit computes the scores of a block of keys and the output of the previous block. Then the
//         softmax of the new scores is computed while the keys of the next block replace those of the previous block.
// Bits:   Blocks of 32 keys are processed in order, independently of the rest of the launch. args defines where
//         segments begin, and a second kernel combines the segments in order.
// Bytes:  A row of keys is read once for 32 heads.
#pragma once

#include "sm80/sparse/rows.cuh"

namespace portable {

constexpr int kSparseThreads = 512;
// Heads and keys that are processed together, and keys per block in args.segment_blocks.
constexpr i32 kUnitHeads = 32, kUnitKeys = 32, kSegmentKeys = 64;
constexpr i32 kPadHeads = 64;  // the heads of a row of partial results are padded to a multiple of this
constexpr int kValues = 512;
constexpr float kLn2 = 0.693147180559945309f, kLog2e = 1.44269504088896341f;
constexpr float kLowest = -1e30f;  // finite, so that a block without a valid key does not give NaN

__device__ __forceinline__ float exp2_fast(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

constexpr int kQuarters = 4;      // quarters of the columns of a row
constexpr int kQuarterSteps = 8;  // products of 16 columns per quarter; 64 rotary columns add a ninth
constexpr u32 kScorePitch = kUnitKeys + 4;  // padded, so that four heads by eight keys have no bank conflicts

template <class Rows>
struct SparseStorage {
    // An odd number of 16-byte units, so that eight rows have no bank conflicts.
    static constexpr u32 Pitch = Rows::D * 2 + 16;
    static constexpr u32 WeightPitch = kUnitKeys * 2 + 16;
    u8 keys[2][kUnitKeys * Pitch];  // the second tile first holds the queries
    u8 weights[kUnitHeads * WeightPitch];
    float scores[kQuarters][kUnitHeads][kScorePitch];
    float factor[kUnitHeads];
    float final[kUnitHeads];
    u32 valid[2][kUnitKeys];
};
static_assert(kUnitHeads == kUnitKeys, "queries lie where keys do");

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
template <class Rows, bool Every>
__device__ __forceinline__ void attend_selected(const SparseAttendArgs& args) {
    using Shared = SparseStorage<Rows>;
    constexpr u32 kPitch = Shared::Pitch;
    // 64 rotary columns are a ninth product of each quarter.
    constexpr bool kRotary = Rows::D > 16 * kQuarters * kQuarterSteps;
    static_assert(Rows::D == 16 * kQuarters * (kQuarterSteps + (kRotary ? 1 : 0)), "other rows than these");
    extern __shared__ __align__(128) u8 dynamic_shared[];
    Shared& shared = *reinterpret_cast<Shared*>(dynamic_shared);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
    const u32 tiles[2] = {shared_address(shared.keys[0]), shared_address(shared.keys[1])};
    const u32 p = shared_address(shared.weights);

    // The order of units: head groups of a row first, then segments, then rows.
    const u32 groups = (args.heads + kUnitHeads - 1) / kUnitHeads;
    const u32 unit = blockIdx.x;
    const i32 head = static_cast<i32>(unit % groups) * kUnitHeads;
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

    // Sixteen threads share row threadIdx.x / 16 of a block of keys.
    const u32 own = threadIdx.x / 16, e = threadIdx.x % 16;
    const i64 list = Every ? args.streams[1].lens[row * args.streams[1].len_stride] : row;
    const auto second = [&](i32 block) { return Rows::kTwoStreams && block >= 2 * first_blocks; };
    // Returns the list entry of this thread's key in a block, or a negative number if there is no key. The entry is
    // loaded one block before it is used, to hide the latency.
    const auto entry_of = [&](i32 block) {
        const SelectionView& s = args.streams[second(block) ? 1 : 0];
        const i32 position = (second(block) ? block - 2 * first_blocks : block) * kUnitKeys + static_cast<i32>(own);
        if (block >= end || position >= (second(block) ? second_len : first_len)) {
            return -1;
        }
        return s.indices[list * s.index_stride + (Every ? position / kSegmentKeys : position)];
    };
    const auto slot_of = [&](i32 block, i32 entry) {
        if (Every && entry >= 0) {  // entry is a page; its keys are consecutive slots
            const i32 key = block % 2 * kUnitKeys + static_cast<i32>(own);
            entry = entry > 0x1FFFFFF ? 0x7FFFFFFF : entry * kSegmentKeys + key;
        }
        if (entry >= args.streams[second(block) ? 1 : 0].slots) {
            raise_fault(args.faults, kFaultSlot);
            return -1;
        }
        return entry;
    };
    const auto load = [&](Rows& rows, i32 block, i32 slot) {
        rows.clear();
        if (slot >= 0) {
            const SelectionView& s = args.streams[second(block) ? 1 : 0];
            const u8* page = s.base + static_cast<i64>(static_cast<u32>(slot) >> s.page_shift) * s.page_bytes;
            const i64 at = slot & s.page_mask;
            rows.load(page + at * Rows::kRowBytes, page + s.scales + at * 8, e);
        }
    };
    Rows held;
    i32 slot = slot_of(begin, entry_of(begin));
    load(held, begin, slot);
    i32 entry = entry_of(begin + 1);

    // The queries in the type of the keys: matrix steps 8 * quarter + i of eight heads, and the step of the rotary
    // part.
    const u32 quarter = warp / 4, first_key = warp % 2 * 16, first_head = warp / 2 % 2 * 16;
    for (u32 i = threadIdx.x; i < kUnitHeads * (Rows::D / 8); i += kSparseThreads) {
        const u32 h = i / (Rows::D / 8), c = i % (Rows::D / 8);
        uint4 v = make_uint4(0, 0, 0, 0);
        if (head + static_cast<i32>(h) < args.heads) {
            const i64 at = row * args.q_stride + static_cast<i64>(head + h) * Rows::D + c * 8;
            v = *reinterpret_cast<const uint4*>(args.q + at);
        }
        store_shared(tiles[1] + h * kPitch + c * 16, Rows::kHalves && c < 2 * Rows::HalfSteps ? halves_of_bf16(v) : v);
    }
    __syncthreads();
    u32 q[2][kQuarterSteps][2], rotary[2][2];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        const u32 from = tiles[1] + (first_head + 8 * n + lane % 8) * kPitch + lane / 8 * 16;
#pragma unroll
        for (int step = 0; step < kQuarterSteps; step += 2) {
            u32 b[4];
            load_matrices(b, from + (kQuarterSteps * quarter + step) * 32);
            q[n][step][0] = b[0], q[n][step][1] = b[1], q[n][step + 1][0] = b[2], q[n][step + 1][1] = b[3];
        }
        if constexpr (kRotary) {  // each quarter multiplies one of the four steps of the rotary part
            u32 b[4];
            load_matrices(b, from + (kQuarters * kQuarterSteps + quarter / 2 * 2) * 32);
            rotary[n][0] = quarter % 2 == 0 ? b[0] : b[2], rotary[n][1] = quarter % 2 == 0 ? b[1] : b[3];
        }
    }

    float m[2], sum[2], largest[2];  // base of the exponents, sum and largest score of heads 2 * warp + i
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        m[i] = largest[i] = kLowest;
        sum[i] = 0.0f;
    }
    float o[2][4][4] = {};

    // Adds the product of weights and values of a block of keys: 32 columns of all heads.
    const auto add_values = [&](u32 k) {
        float f[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            f[i] = shared.factor[group + 8 * i];
        }
        if (__any_sync(ptx::kFullMask, f[0] != 1.0f || f[1] != 1.0f || f[2] != 1.0f || f[3] != 1.0f)) {
#pragma unroll
            for (int i = 0; i < 32; ++i) {
                o[i / 16][i / 4 % 4][i % 4] *= f[i / 16 * 2 + i % 4 / 2];
            }
        }
        u32 a[2][2][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 from = p + (i / 2 * 16 + lane % 16) * Shared::WeightPitch + i % 2 * 32;
            load_matrices(a[i / 2][i % 2], from + lane / 16 * 16);
        }
#pragma unroll
        for (int n = 0; n < 4; n += 2) {
#pragma unroll
            for (int step = 0; step < 2; ++step) {
                u32 b[4];
                load_turned(b, k + (16 * step + lane % 16) * kPitch + (32 * warp + 8 * n) * 2 + lane / 16 * 16);
                const u32 low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
                for (int t = 0; t < 2; ++t) {
                    if constexpr (Rows::kHalves) {
                        multiply_f16(o[t][n], a[t][step], low);
                        multiply_f16(o[t][n + 1], a[t][step], high);
                    } else {
                        multiply_bf16(o[t][n], a[t][step], low);
                        multiply_bf16(o[t][n + 1], a[t][step], high);
                    }
                }
            }
        }
    };
    const auto store = [&](i32 block) {  // stores the rows of a block that this thread holds in registers
        const u32 side = (block - begin) & 1;
        held.store(tiles[side] + own * kPitch, e);
        if (e == 0) {
            shared.valid[side][own] = slot >= 0;
        }
        slot = slot_of(block + 1, entry);
        load(held, block + 1, slot);
        entry = entry_of(block + 2);
    };

    store(begin);
    __syncthreads();  // all threads have read the queries
    for (i32 block = begin; block < end; ++block) {
        const u32 side = (block - begin) & 1;
        {  // scores of 16 keys and 16 heads over a quarter of the columns
            float s[2][4] = {};
            const u32 from = tiles[side] + (first_key + lane % 16) * kPitch + lane / 16 * 16;
#pragma unroll
            for (int step = 0; step < kQuarterSteps; ++step) {
                u32 a[4];
                load_matrices(a, from + (kQuarterSteps * quarter + step) * 32);
#pragma unroll
                for (int n = 0; n < 2; ++n) {
                    if constexpr (Rows::kHalves) {
                        multiply_f16(s[n], a, q[n][step]);
                    } else {
                        multiply_bf16(s[n], a, q[n][step]);
                    }
                }
            }
            if constexpr (kRotary) {
                u32 a[4];
                load_matrices(a, from + (kQuarters * kQuarterSteps + quarter) * 32);
#pragma unroll
                for (int n = 0; n < 2; ++n) {
                    if constexpr (Rows::HalfSteps > kQuarters * kQuarterSteps) {
                        multiply_f16(s[n], a, rotary[n]);
                    } else {
                        multiply_bf16(s[n], a, rotary[n]);
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const u32 of_head = first_head + i / 4 * 8 + 2 * quad + i % 2;
                shared.scores[quarter][of_head][first_key + i % 4 / 2 * 8 + group] = s[i / 4][i % 4];
            }
        }
        if (block > begin) {
            add_values(tiles[side ^ 1]);
        }
        __syncthreads();

        // Softmax weights of the warp's two heads; each lane has one key.
        const bool counts = shared.valid[side][lane] != 0;
        float x[2], high[2], total[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const u32 h = 2 * warp + i;
            const float dot = (shared.scores[0][h][lane] + shared.scores[1][h][lane]) +
                              (shared.scores[2][h][lane] + shared.scores[3][h][lane]);
            x[i] = counts ? dot * args.score_scale : __int_as_float(0xFF800000);
            high[i] = x[i];
        }
        if (block + 1 < end) {
            store(block + 1);
        }
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                high[i] = fmaxf(high[i], __shfl_xor_sync(ptx::kFullMask, high[i], d));
            }
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const u32 h = 2 * warp + i;
            largest[i] = fmaxf(largest[i], high[i]);
            const float base = fmaxf(m[i], high[i]), f = exp2_fast(m[i] - base);
            m[i] = base;
            const float w = exp2_fast(x[i] - base);
            total[i] = w;
            sum[i] *= f;
            const u32 bits = Rows::kHalves ? half_pair(w, 0.0f) : pack_bf16_fast(w, 0.0f);
            *reinterpret_cast<u16*>(shared.weights + h * Shared::WeightPitch + 2 * lane) = static_cast<u16>(bits);
            if (lane == 0) {
                shared.factor[h] = f;
            }
        }
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                total[i] += __shfl_xor_sync(ptx::kFullMask, total[i], d);
            }
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            sum[i] += total[i];
        }
        __syncthreads();
    }
    if (begin < end) {
        add_values(tiles[(end - 1 - begin) & 1]);
    }

    if (lane == 0) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const i32 h = 2 * warp + i;
            float factor = 0.0f;
            if (head + h < args.heads) {
                if (args.segments == 1) {
                    factor = final_factor(args, head + h, m[i], sum[i]);
                    write_stats(args, row, head + h, m[i], largest[i], sum[i]);
                } else {
                    factor = sum[i] > 0.0f ? 1.0f / sum[i] : 0.0f;
                    const i64 at = (static_cast<i64>(row) * args.segments + segment) * args.heads + head + h;
                    reinterpret_cast<float4*>(args.stats)[at] = make_float4(m[i], sum[i], largest[i], 0.0f);
                }
            }
            shared.final[h] = factor;
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const i32 h = 8 * i + static_cast<i32>(group);
        if (head + h >= args.heads) {
            continue;
        }
        const float f = shared.final[h];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const i32 column = 32 * warp + 8 * n + 2 * quad;
            const float x = o[i / 2][n][i % 2 * 2] * f, y = o[i / 2][n][i % 2 * 2 + 1] * f;
            if (args.segments == 1) {
                const i64 at = row * args.out_stride + static_cast<i64>(head + h) * kValues + column;
                *reinterpret_cast<u32*>(args.out + at) = pack_bf16_fast(x, y);
            } else {
                const i64 at = part_at(args, row, segment, head + h) + column;
                if constexpr (Rows::kHalves) {
                    *reinterpret_cast<u32*>(static_cast<u16*>(args.partial) + at) = half_pair(x, y);
                } else {
                    *reinterpret_cast<float2*>(static_cast<float*>(args.partial) + at) = make_float2(x, y);
                }
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

#define PORTABLE_ATTEND(name, rows, every)                                                                   \
    extern "C" __global__ void __launch_bounds__(portable::kSparseThreads, 1)                                \
        name(const __grid_constant__ SparseAttendArgs args) {                                                \
        portable::attend_selected<rows, every>(args);                                                        \
    }                                                                                                        \
    extern "C" __device__ const u32 name##_shared = sizeof(portable::SparseStorage<rows>);
#define PORTABLE_SPARSE(name, rows) PORTABLE_ATTEND(name, rows, false)
#define PORTABLE_LATENT(name, rows) PORTABLE_ATTEND(name, rows, true)
