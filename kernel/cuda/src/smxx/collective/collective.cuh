// All-reduce over ranks that can read each other's memory: x = sum of all ranks' x, added as float32 in the order of
// the ranks and rounded once. All ranks therefore have the same bits, in every run, with either of the two kernels.
//
// One shot:  Every rank copies x to its staging memory, waits for the other ranks, and adds all copies. It reads
//            ranks * bytes.
// Two shots: Every rank adds one slice of all copies, writes the sum to its staging memory, waits again, and copies
//            the slices of the other ranks. It reads 2 * bytes but waits once more.
// Wait:      Block b waits for block b of every rank, because these blocks hold the same elements. There is one word
//            for each pair of ranks, in the memory of the waiting rank. It holds the number of the round. All blocks
//            of all ranks must be resident at the same time.
// Halves:    Staging memory has two halves, used in alternate rounds. A rank writes a half again two rounds later.
//            Every other rank has then started the round in between, which a rank starts only after it has read the
//            half. So no wait is needed at the end of a round.
// Graphs:    The round is counted in memory and is not an argument, so a captured launch can run any number of times.
// Fault:     If a rank does not arrive before the time-out, 1 + its number is stored as the fault. Later launches then
//            do nothing.
// Gather:    Every rank copies its rows to its staging memory, waits for the other ranks, and copies their rows from
//            there. It uses the rounds, flags and halves of the all-reduce.
// Scatter:   The first half of the two-shot kernel: every rank adds its own columns of all copies.
#pragma once
#include "ptx/system.cuh"
#include "smxx/collective/args.h"
#include "smxx/floats.cuh"

constexpr i32 kRounds = 0, kEnded = 1, kFault = 2; // indices of the words of state

// Waits until block b of every rank has arrived. Returns false if a rank does not arrive before the time-out.
DEVICE bool meet(const AllReduceArgs& a, i32 phase, u32 round) {
    __syncthreads();
    bool here = true;
    if (threadIdx.x < a.ranks) {
        const i32 row = (phase * kMaxBlocks + blockIdx.x) * kMaxRanks;
        ptx::store_release_system(a.flags[threadIdx.x] + row + a.rank, round);
        const u32* word = a.flags[a.rank] + row + threadIdx.x;
        const u64 begun = ptx::clock_nanoseconds();
        while (here && static_cast<i32>(ptx::load_acquire_system(word) - round) < 0) {
            here = ptx::clock_nanoseconds() - begun < static_cast<u64>(a.timeout);
        }
        if (!here) atomicCAS(a.state + kFault, 0u, 1u + threadIdx.x);
    }
    return __syncthreads_and(here);
}

// Returns the sum of 16 bytes over the staging halves of all ranks. All loads are issued before the first addition.
DEVICE uint4 sum_ranks(const AllReduceArgs& a, i64 half, i64 at) {
    uint4 v[kMaxRanks];
#pragma unroll
    for (i32 r = 0; r < kMaxRanks; r++) {
        if (r < a.ranks) v[r] = *reinterpret_cast<const uint4*>(a.staging[r] + half + at);
    }
    if (a.type == kF32) {
        f32 s[4] = {__uint_as_float(v[0].x), __uint_as_float(v[0].y), __uint_as_float(v[0].z), __uint_as_float(v[0].w)};
#pragma unroll
        for (i32 r = 1; r < kMaxRanks; r++) {
            if (r >= a.ranks) break;
            s[0] = __fadd_rn(s[0], __uint_as_float(v[r].x));
            s[1] = __fadd_rn(s[1], __uint_as_float(v[r].y));
            s[2] = __fadd_rn(s[2], __uint_as_float(v[r].z));
            s[3] = __fadd_rn(s[3], __uint_as_float(v[r].w));
        }
        return make_uint4(__float_as_uint(s[0]), __float_as_uint(s[1]), __float_as_uint(s[2]), __float_as_uint(s[3]));
    }
    f32 s[8], x[8];
    unpack_8(v[0], s);
#pragma unroll
    for (i32 r = 1; r < kMaxRanks; r++) {
        if (r >= a.ranks) break;
        unpack_8(v[r], x);
#pragma unroll
        for (int i = 0; i < 8; i++) s[i] = __fadd_rn(s[i], x[i]);
    }
    return pack_8(s);
}

// Returns the round of this launch, or 0 after a fault. Every block reads it before the last block increments it.
DEVICE u32 begin_round(const AllReduceArgs& a) {
    ptx::wait_for_previous_kernel();
    const volatile u32* state = a.state;
    return state[kFault] != 0 ? 0 : state[kRounds] + 1;
}

DEVICE void end_round(const AllReduceArgs& a, u32 round) {
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (atomicAdd(a.state + kEnded, 1u) != static_cast<u32>(a.blocks) - 1) return;
    a.state[kEnded] = 0;
    a.state[kRounds] = round;
}

DEVICE void all_reduce_once_body(const AllReduceArgs& a) {
    const u32 round = begin_round(a);
    if (round == 0) return;
    const i64 half = (round & 1) * a.half, step = static_cast<i64>(a.blocks) * kThreads * 16;
    const i64 first = (static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x) * 16;
    u8* x = static_cast<u8*>(a.x);
    u8* own = a.staging[a.rank] + half;
    for (i64 at = first; at < a.bytes; at += step) {
        *reinterpret_cast<uint4*>(own + at) = *reinterpret_cast<const uint4*>(x + at);
    }
    if (meet(a, 0, round)) {
        for (i64 at = first; at < a.bytes; at += step) *reinterpret_cast<uint4*>(x + at) = sum_ranks(a, half, at);
    }
    end_round(a, round);
}

DEVICE void all_reduce_twice_body(const AllReduceArgs& a) {
    const u32 round = begin_round(a);
    if (round == 0) return;
    const i64 half = (round & 1) * a.half, step = static_cast<i64>(a.blocks) * kThreads * 16;
    const i64 first = (static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x) * 16;
    const i64 slice = (a.bytes / 16 + a.ranks - 1) / a.ranks * 16;
    u8* x = static_cast<u8*>(a.x);
    u8* own = a.staging[a.rank] + half;
    for (i32 r = 0; r < a.ranks; r++) {
        const i64 end = min((r + 1) * slice, a.bytes);
        for (i64 at = r * slice + first; at < end; at += step) {
            *reinterpret_cast<uint4*>(own + at) = *reinterpret_cast<const uint4*>(x + at);
        }
    }
    bool here = meet(a, 0, round);
    if (here) {
        const i64 end = min((a.rank + 1) * slice, a.bytes);
        for (i64 at = a.rank * slice + first; at < end; at += step) {
            *reinterpret_cast<uint4*>(own + at) = sum_ranks(a, half, at);
        }
        here = meet(a, 1, round);
    }
    if (here) {
        for (i32 r = 0; r < a.ranks; r++) {
            const u8* from = a.staging[r] + half;
            const i64 end = min((r + 1) * slice, a.bytes);
            for (i64 at = r * slice + first; at < end; at += step) {
                *reinterpret_cast<uint4*>(x + at) = *reinterpret_cast<const uint4*>(from + at);
            }
        }
    }
    end_round(a, round);
}

// Copies rows in units of U, which is 16 or 4 bytes.
template <typename U>
DEVICE void gather_rows(const GatherRanksArgs& g, u32 round) {
    const AllReduceArgs& a = g.peers;
    const i64 half = (round & 1) * a.half, step = static_cast<i64>(a.blocks) * kThreads;
    const i64 first = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
    const i64 size = sizeof(U), width = g.row_bytes / size;
    const u8* x = static_cast<const u8*>(a.x);
    u8* own = a.staging[a.rank] + half;
    for (i64 i = first; i < g.rows[a.rank] * width; i += step) {
        const i64 row = i / width, column = i - row * width;
        *reinterpret_cast<U*>(own + size * i) = *reinterpret_cast<const U*>(x + row * g.x_stride + size * column);
    }
    if (!meet(a, 0, round)) return;
    for (i32 r = 0; r < a.ranks; r++) {
        u8* to = g.out + g.first[r];
        if (r == a.rank && to == x) continue; // this rank's rows are already in place
        const u8* from = a.staging[r] + half;
        for (i64 i = first; i < g.rows[r] * width; i += step) {
            const i64 row = i / width, column = i - row * width;
            *reinterpret_cast<U*>(to + row * g.out_stride + size * column) =
                *reinterpret_cast<const U*>(from + size * i);
        }
    }
}

DEVICE void gather_ranks_body(const GatherRanksArgs& g) {
    const u32 round = begin_round(g.peers);
    if (round == 0) return;
    if (g.unit == 16) {
        gather_rows<uint4>(g, round);
    } else {
        gather_rows<u32>(g, round);
    }
    end_round(g.peers, round);
}

// Staging memory holds the columns of each rank together, [ranks, rows, row_bytes]. Block b of every rank therefore
// wrote the columns that block b adds.
DEVICE void reduce_scatter_body(const ReduceScatterArgs& g) {
    const AllReduceArgs& a = g.peers;
    const u32 round = begin_round(a);
    if (round == 0) return;
    const i64 half = (round & 1) * a.half, step = static_cast<i64>(a.blocks) * kThreads;
    const i64 first = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x, width = g.row_bytes / 16;
    const i64 part = g.rows * width;
    const u8* x = static_cast<const u8*>(a.x);
    u8* own = a.staging[a.rank] + half;
    for (i64 i = first; i < part; i += step) {
        const i64 row = i / width, column = i - row * width;
        const u8* from = x + row * g.x_stride + 16 * column;
        for (i32 r = 0; r < a.ranks; r++) {
            *reinterpret_cast<uint4*>(own + 16 * (r * part + i)) =
                *reinterpret_cast<const uint4*>(from + static_cast<i64>(r) * g.row_bytes);
        }
    }
    if (meet(a, 0, round)) {
        for (i64 i = first; i < part; i += step) {
            const i64 row = i / width, column = i - row * width;
            *reinterpret_cast<uint4*>(g.out + row * g.out_stride + 16 * column) =
                sum_ranks(a, half, 16 * (a.rank * part + i));
        }
    }
    end_round(a, round);
}

DEVICE void part_ids_body(const PartIdsArgs& a) {
    begin_after_previous();
    const i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= static_cast<i64>(a.rows) * a.columns) return;
    const i64 row = i / a.columns;
    const i32 id = a.ids[row * a.id_stride + i - row * a.columns], own = id - a.first;
    if (id >= a.all) raise_fault(a.faults, a.fault);
    a.out[i] = id >= 0 && own >= 0 && own < a.count ? own : -1;
}
