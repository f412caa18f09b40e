// A ring of slots in shared memory through which the rows of a block pass. A copy warp fills it with the pieces of
// one row after the other, in an order that the row source defines. Readers take the pieces in that order and release
// each one.
#pragma once

#include "ptx/barrier.cuh"
#include "ptx/copy.cuh"
#include "ptx/warp.cuh"
#include "sm90/topk/row.cuh"

namespace sparrow_topk {

constexpr int kSlotScores = 2048;  // scores per copy
constexpr int kSlotWords = kSlotScores / 32;

template <int Slots>
struct alignas(16) RingStorage {
    float slots[Slots][kSlotScores];
    u64 arrived[Slots];  // mbarriers: the copy to the slot has arrived
    u64 emptied[Slots];  // mbarriers: all readers have released the slot
    i32 place[Slots];    // position in its row of the copy in the slot
    u32 asked;           // number of copies issued so far
};

// Source defines the rows: count(), row(v), copies(row), and Order(copies), whose next() returns the positions of the
// copies of a row, one after the other. Returns is the number of arrivals that release a copy.
template <int Slots, int Returns, class Source>
struct Ring {
    RingStorage<Slots>& storage;
    const Source source;
    u32 base = 0;          // number of copies of the earlier rows
    mutable u32 seen = 0;  // value of `asked` that this thread read last

    __device__ __forceinline__ Ring(RingStorage<Slots>& s, const Source& r) : storage(s), source(r) {}

    // Initialises the barriers. All threads call it, and a block barrier must follow.
    __device__ __forceinline__ void init() {
        if (threadIdx.x < Slots) {
            ptx::barrier_init(ptx::shared_address(&storage.arrived[threadIdx.x]), 1);
            ptx::barrier_init(ptx::shared_address(&storage.emptied[threadIdx.x]), Returns);
        }
        if (threadIdx.x == 0) {
            storage.asked = 0;
        }
        ptx::barrier_init_fence();
    }

    // Issues all copies. One thread, which is not a reader, runs it.
    __device__ __forceinline__ void fill() {
        u32 slot = 0, lap = 1;
        Row next = source.row(blockIdx.x);
        for (i32 v = blockIdx.x; v < source.count(); v += gridDim.x) {
            const Row w = next;
            next = source.row(v + gridDim.x);
            const i32 count = source.copies(w);
            typename Source::Order order(count);
            for (i32 i = 0; i < count; ++i) {
                const i32 place = order.next(), first = place * kSlotScores;
                const u32 bytes = ((min(w.end() - first, kSlotScores) + 3) & ~3) * sizeof(float);
                const u32 bar = ptx::shared_address(&storage.arrived[slot]);
                ptx::barrier_wait(ptx::shared_address(&storage.emptied[slot]), lap);
                storage.place[slot] = place;
                ptx::barrier_expect(bar, bytes);
                ptx::load_bytes(ptx::shared_address(storage.slots[slot]), w.scores + first, bytes, bar,
                    ptx::kEvictFirst);
                ptx::raise_release(ptx::shared_address(&storage.asked));
                if (++slot == Slots) {
                    slot = 0;
                    lap ^= 1;
                }
            }
        }
    }

    // Waits for the i-th copy of the current row. Copies may complete out of order, so a reader can call this before
    // the previous copy in the slot has completed. The parity of the barrier cannot distinguish that state from the
    // completed current copy, so the number of issued copies is checked first.
    __device__ __forceinline__ const float* copy(u32 i) const {
        const u32 number = base + i, slot = number % Slots;
        while (static_cast<i32>(seen - number) <= 0) {
            seen = ptx::read_acquire(ptx::shared_address(&storage.asked));
        }
        ptx::barrier_wait(ptx::shared_address(&storage.arrived[slot]), number / Slots & 1);
        return storage.slots[slot];
    }

    // Returns the position in its row of the i-th copy, after the copy has arrived.
    __device__ __forceinline__ i32 place(u32 i) const { return storage.place[(base + i) % Slots]; }

    // Releases the i-th copy of the current row.
    __device__ __forceinline__ void give_back(u32 i) const {
        ptx::barrier_arrive(ptx::shared_address(&storage.emptied[(base + i) % Slots])); }

    // Advances to the next row, after a row of `copies` copies.
    __device__ __forceinline__ void next_row(u32 copies) { base += copies; }
};

}  // namespace sparrow_topk
