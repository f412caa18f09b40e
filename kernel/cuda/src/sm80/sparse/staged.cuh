// Sparse attention over rows of codes, portable kernels for multiprocessors whose blocks can have 163 KB of shared
// memory: 64 heads of a query row over one segment of its selected keys (arguments: sm90/sparse/args.h). Results are
// bitwise equal to those of sparse.cuh.
//
// Block:  Eight warps. 32 keys at a time are in shared memory as 16-bit rows, in three tiles that rotate. A warp
//         computes scores of 16 heads by 32 keys over half of the columns, and exchanges half of its sums with the
//         next warp, as in sparse.cuh. It computes the output of all heads for 64 columns.
// Phases: The scores of block b. Then the softmax weights of block b, and the output of block b - 1. Between the
//         products of the output, each warp converts four rows of block b + 1. It has copied these rows, as they are
//         stored, to shared memory that no other warp reads, and then issues the copies of the rows of block b + 2.
//         Warps w and w + 4 share a scheduler. Warps 0 to 3 compute the weights first, and warps 4 to 7 the output, so
//         that the matrix unit works during the softmax. A block of keys has one barrier of all warps.
// Bytes:  A row of keys is read once for 64 heads. Accesses of 128 bytes of shared memory per 32 keys: 1152 for scores,
//         128 for their exchange, 512 for the output, 490 for the conversion, 164 for copies. Products of the matrix
//         unit per 32 keys: 136 of each warp.
#pragma once

#include "sm80/sparse/unit.cuh"

namespace portable {

// Stages: blocks of stored rows.
template <class Rows, int Stages>
struct StagedStorage {
    static constexpr int Heads = 64, Warps = 8, Threads = 256;
    static constexpr u32 Pitch = kPitchOf<Rows>;
    static constexpr u32 WeightPitch = kUnitKeys * 2 + 16;
    // Bytes of a row as it is stored: an odd number of 64-byte units, so that two rows have no bank conflicts.
    static constexpr u32 StoredPitch = (16 * (Rows::kPieces + (Rows::kTwoStreams ? 1 : 0)) + 63) / 128 * 128 + 64;
    u8 keys[3][kUnitKeys * Pitch];  // at first the queries lie where the first two tiles do
    u8 stored[Stages][kUnitKeys * StoredPitch];
    u8 weights[2][Heads * WeightPitch];
    float4 sums[Warps][2][32];  // sums of each warp for the warp with the other columns
    float factor[2][Heads];
    float final[Heads];  // largest score, and at last the factor of the output
    u32 valid[4][kUnitKeys];  // of blocks modulo 4
    i32 unit[3];              // row, segment and first head: they are needed at last, and registers are scarce
};

template <bool Value>
struct Flag {
    static constexpr bool kValue = Value;
};

template <class Rows, int Stages>
__device__ __forceinline__ void attend_staged(const SparseAttendArgs& args) {
    using Shared = StagedStorage<Rows, Stages>;
    constexpr int kHeads = Shared::Heads, kThreads = Shared::Threads, kHeadTiles = kHeads / 16, kColumnTiles = 8;
    constexpr u32 kPitch = Shared::Pitch, kTile = kUnitKeys * kPitch;
    // Convert rows between products. Shifts of codes need registers for their constants, so they are not mixed.
    constexpr bool kMixed = kCodeFactor == 1.0f;
    // Matrix steps of a warp: half of 512 columns, and of the 64 rotary columns if there are any.
    constexpr int kSteps = Rows::D / 32, kLatentSteps = 16;
    extern __shared__ __align__(128) u8 dynamic_shared[];
    Shared& shared = *reinterpret_cast<Shared*>(dynamic_shared);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
    const u32 tiles = shared_address(shared.keys), p = shared_address(shared.weights);

    // The order of units: head groups of a row first, then segments, then rows.
    const u32 groups = (args.heads + kHeads - 1) / kHeads;
    const u32 unit = blockIdx.x;
    i32 head = static_cast<i32>(unit % groups) * kHeads;
    i32 segment = static_cast<i32>(unit / groups % args.segments);
    i32 row = static_cast<i32>(unit / groups / args.segments);
    if (threadIdx.x == 0) {
        shared.unit[0] = row, shared.unit[1] = segment, shared.unit[2] = head;
    }
    const SegmentKeys<Rows, false> keys(args, row, segment);
    const i32 begin = keys.begin, end = keys.end;
    if (begin >= end && args.segments > 1) {
        return;  // the combine kernel does not read segments without keys
    }

    // Eight threads share a row of a block of keys.
    const u32 own = threadIdx.x / kRowThreads, e = threadIdx.x % kRowThreads;
    const auto stored_at = [&](i32 block) {
        return shared_address(shared.stored[block % Stages]) + own * Shared::StoredPitch;
    };
    // Issues the copies of the rows of a block, as one group.
    const auto fetch = [&](i32 block, i32 entry) {
        if (block < end) {
            const bool valid = keys.copy(stored_at(block), block, static_cast<i32>(own), entry, e);
            if (e == 0) {
                shared.valid[block % 4][own] = valid;
            }
        }
        copies_commit();
    };
    const i32 first = keys.entry(begin, static_cast<i32>(own));
    i32 entry = keys.entry(begin + 1, static_cast<i32>(own));  // of the next block to be copied
    const auto fetch_next = [&](i32 block) {
        fetch(block, entry);
        entry = keys.entry(block + 1, static_cast<i32>(own));
    };

    // The queries are copied to the tiles first.
    const u32 half = warp % 2, warp_head = warp / 2 * 16;
    for (u32 i = threadIdx.x; i < kHeads * (Rows::D / 8); i += kThreads) {
        const u32 h = i / (Rows::D / 8), c = i % (Rows::D / 8);
        const i64 at = row * args.q_stride + static_cast<i64>(head + h) * Rows::D + c * 8;
        copy_16(tiles + h * kPitch + c * 16, args.q + at, head + static_cast<i32>(h) < args.heads);
    }
    copies_commit();
    fetch(begin, first);
    if (Stages == 2) {
        fetch_next(begin + 1);
    }
    // The byte in a row of step i of this warp.
    const auto column = [&](int i) {
        return (i < kLatentSteps ? kLatentSteps * half + i : kLatentSteps + 2 * half + i) * 32;
    };
    copies_wait<Stages>();
    __syncthreads();  // the queries have arrived
    u32 q[kSteps][4];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
        load_matrices(q[i], tiles + (warp_head + lane % 16) * kPitch + column(i) + lane / 16 * 16);
        if (i < kLatentSteps || Rows::HalfSteps > 2 * kLatentSteps) {  // the type of the keys
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                q[i][j] = half_pair(bf16_low(q[i][j]), bf16_high(q[i][j]));
            }
        }
    }
    const u32 own_head = warp_head + 8 * half + group;  // the head of this lane's softmax
    HeadSum head_sum;
    if (quad == 0) {
        shared.final[own_head] = kLowest;
    }
    float o[kHeadTiles][kColumnTiles][4] = {};

    // Waits for the copies of this warp's rows of the block that is converted next.
    const auto arrive = [] {
        copies_wait<Stages - 1>();
        __syncwarp();
    };
    // Adds the product of weights and values of a block of keys, which are in tile `from`: all heads, and the columns
    // of this warp. If convert is true, converts this warp's rows of another block from address `stored` to tile `to`.
    const auto add_values = [&](auto convert, u32 from, u32 side, u32 stored, u32 to) {
        constexpr bool kConvert = decltype(convert)::kValue;
        constexpr int kSlots = 8;  // each has the products of 16 keys and 16 columns
        scale_output(shared.factor[side], group, o);
        if (kConvert) {
            arrive();
        }
        const u32 row_to = tiles + to * kTile + own * kPitch;
        const u32 values = tiles + from * kTile + lane % 16 * kPitch + kColumnTiles * warp * 16 + lane / 16 * 16;
        const u32 weights = p + (side * kHeads + lane % 16) * Shared::WeightPitch + lane / 16 * 16;
        u32 a[kHeadTiles][4], next[4];
        load_turned(next, values);
        uint2 codes = kConvert ? load_eight(stored + 8 * e) : make_uint2(0, 0);
#pragma unroll
        for (int slot = 0; slot < kSlots; ++slot) {
            if (slot % 4 == 0) {
#pragma unroll
                for (int t = 0; t < kHeadTiles; ++t) {
                    load_matrices(a[t], weights + t * 16 * Shared::WeightPitch + slot / 4 * 32);
                }
            }
            const u32 low[2] = {next[0], next[1]}, high[2] = {next[2], next[3]};
            if (slot + 1 < kSlots) {
                load_turned(next, values + (slot + 1) / 4 * 16 * kPitch + (slot + 1) % 4 * 32);
            }
            const int n = slot % 4 * 2;
#pragma unroll
            for (int t = 0; t < kHeadTiles; ++t) {
                multiply_f16(o[t][n], a[t], low);
                multiply_f16(o[t][n + 1], a[t], high);
            }
            if (kConvert) {
#pragma unroll
                for (int g = slot; g < Rows::kGroups; g += slot + 1 == kSlots ? 1 : Rows::kGroups) {
                    const uint2 now = codes;
                    if (g + 1 < Rows::kGroups) {
                        codes = load_eight(stored + 64 * (g + 1) + 8 * e);
                    }
                    Rows::store_group(row_to, stored, e, g, now);
                }
            }
        }
        if (kConvert) {
            Rows::store_rope(row_to, stored, e);
        }
    };
    const auto convert_rows = [&](u32 stored, u32 to) {
        arrive();
        const u32 row_to = tiles + to * kTile + own * kPitch;
#pragma unroll
        for (int g = 0; g < Rows::kGroups; ++g) {
            Rows::store_group(row_to, stored, e, g, load_eight(stored + 64 * g + 8 * e));
        }
        Rows::store_rope(row_to, stored, e);
    };

    __syncthreads();  // all warps have read the queries
    if (begin < end) {
        convert_rows(stored_at(begin), 0);
        __syncwarp();
        fetch_next(begin + Stages);
    }
    u32 tile = 0;
    for (i32 block = begin; block < end; ++block) {
        const u32 side = block & 1, after = tile == 2 ? 0 : tile + 1, before = tile == 0 ? 2 : tile - 1;
        // The rows of the block are converted, and the weights of the previous block are stored. The values of the
        // block before that have been read.
        __syncthreads();
        float s[4][4] = {};  // scores of 16 heads and 32 keys over half of the columns
        const u32 from = tiles + tile * kTile + (lane % 8 + lane / 16 * 8) * kPitch + lane / 8 % 2 * 16;
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
#pragma unroll
            for (int n = 0; n < 4; n += 2) {
                u32 b[4];
                load_matrices(b, from + 8 * n * kPitch + column(i));
                const u32 low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
                if (i < kLatentSteps || Rows::HalfSteps > 2 * kLatentSteps) {
                    multiply_f16(s[n], q[i], low);
                    multiply_f16(s[n + 1], q[i], high);
                } else {
                    multiply_bf16(s[n], q[i], low);
                    multiply_bf16(s[n + 1], q[i], high);
                }
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
#pragma unroll 1
        for (u32 turn = 0; turn < 2; ++turn) {
            if (turn == warp / 4) {
                asm volatile("bar.sync %0, 64;" ::"r"(1 + warp / 2) : "memory");
                const float4 others[2] = {shared.sums[warp ^ 1][0][lane], shared.sums[warp ^ 1][1][lane]};
                weigh<Rows>(args, shared.valid[block % 4], x, reinterpret_cast<const float*>(others), quad,
                            shared.weights[side] + own_head * Shared::WeightPitch, &shared.factor[side][own_head],
                            &shared.final[own_head], head_sum);
            } else {
                if (block > begin) {
                    add_values(Flag<kMixed>{}, before, side ^ 1, stored_at(block + 1), after);
                }
                if (!kMixed || block == begin) {
                    convert_rows(stored_at(block + 1), after);
                }
                __syncwarp();
                fetch_next(block + 1 + Stages);
            }
        }
        tile = after;
    }
    __syncthreads();
    if (begin < end) {
        add_values(Flag<false>{}, tile == 0 ? 2 : tile - 1, 1, 0, 0);  // end is even
    }

    row = shared.unit[0], segment = shared.unit[1], head = shared.unit[2];
    finish_head(args, row, segment, head, static_cast<i32>(own_head), quad, head_sum, shared.final);
    __syncthreads();
    write_output<Rows>(args, row, segment, head, static_cast<i32>(warp), group, quad, shared.final, o);
}

}  // namespace portable

#define PORTABLE_STAGED(name, rows)                                                                 \
    extern "C" __global__ void __launch_bounds__(256, 1)                                            \
        name##_staged(const __grid_constant__ SparseAttendArgs args) {                              \
        portable::attend_staged<rows, 1>(args);                                                \
    }                                                                                               \
    extern "C" __device__ const u32 name##_staged_shared = sizeof(portable::StagedStorage<rows, 1>);
