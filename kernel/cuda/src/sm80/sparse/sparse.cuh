// Sparse attention, portable kernels: 64 or 32 heads of a query row over one segment of its selected keys, or of all
// keys of its sequence (arguments: sm90/sparse/args.h).
//
// Block:  A warp for every 8 heads. 32 keys at a time are in shared memory as 16-bit rows, in two tiles that alternate.
//         Scores: a warp computes 16 heads by 32 keys over half of the columns. The queries of these columns stay in
//         its registers. The two warps of 16 heads exchange half of their sums, so that each has 8 heads. A lane has 8
//         keys of a head. Output: a warp has all heads and 64 columns, or 128 columns if there are 32 heads.
// Phases: The scores and softmax weights of the keys, and then the output, while the next rows are copied to the other
//         tile. Then the next rows are converted to 16 bits in place.
// Bits:   Sums do not depend on the number of heads of a block. Blocks of 32 keys are processed in order, independently
//         of the rest of the launch. args defines where segments begin, and a second kernel combines the segments in
//         order.
// Bytes:  A row of keys is read once for the heads of a block.
#pragma once

#include "sm80/sparse/unit.cuh"

namespace portable {

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
    const SegmentKeys<Rows, Every> keys(args, row, segment);
    const i32 begin = keys.begin, end = keys.end;
    if (begin >= end && args.segments > 1) {
        return;  // the combine kernel does not read segments without keys
    }

    // Eight threads share a row of a block of keys: this thread's rows are own + i * kThreads / 8.
    const u32 own = threadIdx.x / kRowThreads, e = threadIdx.x % kRowThreads;
    const auto key_of = [&](int i) { return own + i * (kThreads / kRowThreads); };
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
        entry[i] = keys.entry(begin, static_cast<i32>(key_of(i)));
    }
    const auto fetch = [&](i32 block, u32 side) {
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            const u32 key = key_of(i);
            const bool valid = keys.copy(tile(side) + key * kPitch + kStoredAt<Rows>, block, static_cast<i32>(key),
                                         entry[i], e);
            if (e == 0) {
                shared.valid[side][key] = valid;
            }
            entry[i] = keys.entry(block + 1, static_cast<i32>(key));
        }
        copies_commit();
    };
    const auto convert = [&](u32 side) {
        copies_wait<0>();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            const u32 to = tile(side) + key_of(i) * kPitch;
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
    HeadSum sums;
    if (quad == 0) {
        shared.final[own_head] = kLowest;
    }
    float o[kHeadTiles][kColumnTiles][4] = {};

    // Adds the product of weights and values of a block of keys: all heads, and the columns of this warp.
    const auto add_values = [&](u32 k) {
        scale_output(shared.factor, group, o);
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
                    multiply_keys<Rows>(o[t][n], a[t], low);
                    multiply_keys<Rows>(o[t][n + 1], a[t], high);
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
        weigh<Rows>(args, shared.valid[side], x, reinterpret_cast<const float*>(others), quad,
                    shared.weights + own_head * Shared::WeightPitch, &shared.factor[own_head],
                    &shared.final[own_head], sums);
    };

    // A turn computes the weights of a block and adds its values. The rows of the next block are copied meanwhile, and
    // then converted.
    __syncthreads();  // all warps have read the queries
    if (begin < end) {
        fetch(begin, 0);  // begin is even
        convert(0);
    }
    for (i32 block = begin; block < end; ++block) {
        const u32 side = block & 1;
        __syncthreads();  // the rows of the block are converted; the previous keys and weights have been read
        const bool more = block + 1 < end;
        if (more) {
            fetch(block + 1, side ^ 1);
        }
        add_weights(side);
        __syncthreads();
        add_values(tile(side));
        if (more) {
            convert(side ^ 1);
        }
    }

    finish_head(args, row, segment, head, static_cast<i32>(own_head), quad, sums, shared.final);
    __syncthreads();
    write_output<Rows>(args, row, segment, head, static_cast<i32>(warp), group, quad, shared.final, o);
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
#pragma unroll 4  // so that the loads of four segments are in flight
    for (i32 s = 0; s < live; ++s) {
        const float4 v = stats[static_cast<i64>(s) * args.heads];
        base = fmaxf(base, v.x);
        largest = fmaxf(largest, v.z);
    }
#pragma unroll 4
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
