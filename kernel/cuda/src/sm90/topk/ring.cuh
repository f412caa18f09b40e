// A ring of slots in shared memory through which the rows of a block pass: the copy engine fills slots with the copies of one row after
// the other, in an order that the row source gives; readers take them in that order and give them back in groups.
#pragma once

#include "ptx/barrier.cuh"
#include "ptx/copy.cuh"
#include "ptx/warp.cuh"
#include "sm90/topk/row.cuh"

namespace sparrow_topk {

constexpr int kSlotScores = 2048;  // scores of one copy
constexpr int kSlotWords = kSlotScores / 32;

template <int Slots>
struct RingStorage {
    float slots[Slots][kSlotScores];
    u64 arrived[Slots];  // mbarriers: the slot's copy is there
};

// Source says which rows there are: count(), row(v), copies(row), and order(row, i), the place in the row of the i-th copy.
template <int Slots, class Source>
struct Ring {
    static_assert(Slots <= 32, "a lane asks for each copy");

    RingStorage<Slots>& storage;
    const Source source;
    u32 base = 0;  // slot of the readers' first copy
    u32 lap = 0;   // parity of that slot's barrier

    // The next copy to ask for; only the first warp's is kept up to date.
    struct Cursor {
        i32 v;      // row
        Row row;
        Row ahead;  // the row after it: its length is loaded long before it is needed
        i32 done;   // copies of the row
        u32 slot;
        i32 free;   // slots nobody reads any more
    } cursor;

    __device__ __forceinline__ Ring(RingStorage<Slots>& s, const Source& r) : storage(s), source(r) {}

    // All threads, before a block barrier.
    __device__ __forceinline__ void init() {
        if (threadIdx.x < Slots) {
            ptx::barrier_init(ptx::shared_address(&storage.arrived[threadIdx.x]), 1);
        }
        ptx::barrier_init_fence();
    }

    // All threads, after it: asks for the first copies.
    __device__ __forceinline__ void start() {
        if (threadIdx.x < 32) {
            const i32 v = blockIdx.x;
            cursor = Cursor{v, source.row(v), source.row(v + gridDim.x), 0, 0, 0};
            fetch(Slots);
        }
    }

    // All threads, after a block barrier behind the last use of the first n copies.
    __device__ __forceinline__ void release(u32 n) {
        base += n;
        lap ^= base >= Slots;
        base -= base >= Slots ? Slots : 0;
        if (threadIdx.x < 32) {
            fetch(n);
        }
    }

    // Waits for the i-th copy that was not given back.
    __device__ __forceinline__ const float* copy(u32 i) const {
        u32 slot = base + i;
        const u32 parity = lap ^ (slot >= Slots);
        slot -= slot >= Slots ? Slots : 0;
        ptx::barrier_wait(ptx::shared_address(&storage.arrived[slot]), parity);
        return storage.slots[slot];
    }

private:
    // Asks for as many copies as there are free slots. The first warp calls it, a lane for each copy.
    __device__ __forceinline__ void fetch(i32 freed) {
        const i32 lane = threadIdx.x % 32;
        Cursor& c = cursor;
        c.free += freed;
        const i32 rows = source.count();
        while (c.free > 0 && c.v < rows) {
            const i32 n = min(c.free, source.copies(c.row) - c.done);
            if (lane < n) {
                u32 slot = c.slot + lane;
                slot -= slot >= Slots ? Slots : 0;
                const i32 first = source.order(c.row, c.done + lane) * kSlotScores;
                const u32 bytes = ((min(c.row.end() - first, kSlotScores) + 3) & ~3) * sizeof(float);
                const u32 bar = ptx::shared_address(&storage.arrived[slot]);
                ptx::barrier_expect(bar, bytes);
                ptx::load_bytes(ptx::shared_address(storage.slots[slot]), c.row.scores + first, bytes, bar, ptx::kEvictFirst);
            }
            c.free -= n;
            c.done += n;
            c.slot += n;
            c.slot -= c.slot >= Slots ? Slots : 0;
            if (c.done == source.copies(c.row)) {
                c.v += gridDim.x;
                c.row = c.ahead;
                c.ahead = source.row(c.v + gridDim.x);
                c.done = 0;
            }
        }
        __syncwarp();
    }
};

}  // namespace sparrow_topk
