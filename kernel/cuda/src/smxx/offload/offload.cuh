// Experts in host memory. Either rows are sent to the worker threads of the host, which compute while the device
// computes its own experts, or the packed weights are copied to the device.
//
// Post:   One block per row. A row that chose an expert of the host is copied to page-locked memory, 16 bytes per
//         thread. The last block to finish writes the message and then the round number, for which the workers wait.
// Wait:   One thread polls the word of the workers every half microsecond until it contains the round number. If the
//         workers do not answer in time, a fault is raised; later launches then neither post nor wait.
// Take:   One block per choice copies the result of a host expert to its position among the results, which are summed
//         in the order of the choice.
// Fetch:  The blocks of a slot check whether a choice needs the slot, and copy a share of its bytes over the bus.
// Bus:    Simulates a slower bus with one block: before a copy it reserves bus time for the bytes, and after the copy
//         it waits until that time has passed.
// Graphs: Rounds are counted in memory and are not arguments, so a captured launch can run any number of times. The
//         position of an expert is read from a table, so moving an expert changes the table and not the launch.
#pragma once
#include "ptx/system.cuh"
#include "smxx/floats.cuh"
#include "smxx/offload/args.h"

constexpr u32 kFaultHost = 32; // fault bit: workers on the host failed or did not answer (base.h)
// Table entry of an expert that the host computes; other negative entries: another device computes it.
constexpr i32 kOnHost = -1;

// Words of a mailbox. The words that the host's workers write have their own cache line.
constexpr i32 kMailPosted = 0, kMailMessage = 1, kMailFinished = 16, kMailFailed = 17;
constexpr i32 kMailRounds = 0, kMailCame = 1, kMailFault = 2; // indices of the words of state

// Loads 16 bytes of host memory that changes between launches; the load must not be served from a cache.
DEVICE uint4 load_host(const uint4* at) {
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}

// Copies a row in units of 16 bytes, with all threads of a block. Loads are issued together because one load over the
// bus takes one or two microseconds.
template <bool FromHost> DEVICE void copy_row(uint4* to, const uint4* from, i32 count) {
    constexpr i32 kEach = 4;
#pragma unroll 1
    for (i32 first = threadIdx.x; first < count; first += kEach * kThreads) {
        uint4 v[kEach];
#pragma unroll
        for (i32 i = 0; i < kEach; i++) {
            const uint4* at = from + first + i * kThreads;
            if (first + i * kThreads < count) v[i] = FromHost ? load_host(at) : *at;
        }
#pragma unroll
        for (i32 i = 0; i < kEach; i++) {
            if (first + i * kThreads < count) to[first + i * kThreads] = v[i];
        }
    }
}

// Returns the table entry of a choice: a place, or a negative number.
DEVICE i32 place_of(const i32* table, i32 id, i32 experts, u32* faults) {
    if (id >= experts) {
        raise_fault(faults, kFaultExpert);
        return -1;
    }
    return id < 0 ? -1 : table[id];
}

DEVICE void offload_post_body(const ExchangeArgs& a) {
    begin_after_previous();
    const i64 row = blockIdx.x;
    bool hosted = false;
    if (threadIdx.x < a.top) {
        const i32 id = a.ids[row * a.id_stride + threadIdx.x];
        const i32 place = place_of(a.table, id, a.experts, a.faults);
        hosted = place == kOnHost && id >= 0 && id < a.experts;
        a.places[row * a.top + threadIdx.x] = place;
        a.mail_ids[row * a.top + threadIdx.x] = id < a.experts ? id : -1;
    }
    if (__syncthreads_or(hosted)) {
        copy_row<false>(reinterpret_cast<uint4*>(a.mail_x + row * a.hidden),
                        reinterpret_cast<const uint4*>(a.x + row * a.x_stride), a.hidden / 8);
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence_system(); // makes the writes of this block visible before it is counted as arrived
    if (atomicAdd(a.state + kMailCame, 1u) != static_cast<u32>(a.rows) - 1) return;
    __threadfence_system();
    a.state[kMailCame] = 0;
    if (a.state[kMailFault] != 0) return;
    const u32 round = a.state[kMailRounds] + 1;
    a.state[kMailRounds] = round;
    volatile u32* message = a.words + kMailMessage;
    message[0] = a.layer;
    message[1] = a.rows;
    message[2] = a.top;
    message[3] = __float_as_uint(a.limit);
    message[4] = a.prompt;
    ptx::store_release_system(a.words + kMailPosted, round);
}

DEVICE void offload_wait_body(const ExchangeArgs& a) {
    begin_after_previous();
    if (threadIdx.x != 0) return;
    bool fault = a.state[kMailFault] != 0;
    const u32 round = a.state[kMailRounds];
    const u64 begun = ptx::clock_nanoseconds();
    while (!fault && static_cast<i32>(ptx::load_acquire_system(a.words + kMailFinished) - round) < 0) {
        if (ptx::clock_nanoseconds() - begun < static_cast<u64>(a.timeout)) {
            __nanosleep(500);
        } else {
            fault = true;
            a.state[kMailFault] = 1;
        }
    }
    if (fault || ptx::load_acquire_system(a.words + kMailFailed) != 0) raise_fault(a.faults, kFaultHost);
}

DEVICE void offload_take_body(const ExchangeArgs& a) {
    begin_after_previous();
    const i64 pair = blockIdx.x, row = pair / a.top;
    const i32 id = a.ids[row * a.id_stride + (pair - row * a.top)];
    if (id < 0 || id >= a.experts || a.places[pair] != kOnHost) return;
    copy_row<true>(reinterpret_cast<uint4*>(a.results + pair * a.hidden),
                   reinterpret_cast<const uint4*>(a.mail_results + pair * a.hidden), a.hidden / 8);
}

DEVICE void offload_places_body(const PlacesArgs& a) {
    begin_after_previous();
    const i64 pair = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x, row = pair / a.top;
    if (row >= a.rows) return;
    a.places[pair] = place_of(a.table, a.ids[row * a.id_stride + (pair - row * a.top)], a.experts, a.faults);
}

// Copies this block's share of a piece of an expert, in units of V. Loads are issued together because one load takes
// microseconds.
template <class V> DEVICE void fetch_piece(const FetchArgs& a, i32 piece, i64 slot) {
    const i64 count = a.bytes[piece] / sizeof(V), step = static_cast<i64>(a.blocks) * kThreads;
    const V* from = reinterpret_cast<const V*>(a.from[piece] + slot * a.bytes[piece]);
    V* to = reinterpret_cast<V*>(a.to[piece] + slot * a.bytes[piece]);
    constexpr i32 kEach = 4;
    for (i64 at = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; at < count; at += kEach * step) {
        V v[kEach];
#pragma unroll
        for (i32 i = 0; i < kEach; i++) {
            if (at + i * step < count) v[i] = __ldcs(from + at + i * step);
        }
#pragma unroll
        for (i32 i = 0; i < kEach; i++) {
            if (at + i * step < count) to[at + i * step] = v[i];
        }
    }
}

DEVICE void offload_fetch_body(const FetchArgs& a) {
    begin_after_previous();
    const i32 slot = blockIdx.y;
    bool chosen = false;
    for (i32 i = threadIdx.x; i < a.pairs; i += kThreads) chosen = chosen || a.places[i] == slot;
    if (!__syncthreads_or(chosen)) return;
    fetch_piece<uint4>(a, 0, slot);
    fetch_piece<uint4>(a, 1, slot);
    fetch_piece<uint2>(a, 2, slot);
    fetch_piece<uint2>(a, 3, slot);
}

DEVICE void offload_bus_body(const FetchArgs& a) {
    begin_after_previous();
    unsigned long long* until = reinterpret_cast<unsigned long long*>(a.to[0]);
    unsigned long long* mine = reinterpret_cast<unsigned long long*>(a.to[1]);
    if (a.reserved != 0) {
        if (threadIdx.x != 0) return;
        const u64 end = *mine;
        while (ptx::clock_nanoseconds() < end) __nanosleep(500);
        return;
    }
    u64 take = a.bytes[0];
    if (a.places != nullptr) {
        i32 chosen = 0;
        for (i32 slot = 0; slot < a.slots; slot++) {
            bool here = false;
            for (i32 i = threadIdx.x; i < a.pairs; i += kThreads) here = here || a.places[i] == slot;
            if (__syncthreads_or(here)) chosen++;
        }
        take *= chosen;
    }
    if (threadIdx.x != 0) return;
    const u64 now = ptx::clock_nanoseconds();
    unsigned long long old = *until, seen, end;
    do { // retried, because several streams share the bus
        seen = old;
        end = (seen > now ? seen : now) + take;
        old = atomicCAS(until, seen, end);
    } while (old != seen);
    *mine = end;
}
