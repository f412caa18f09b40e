// A math warpgroup: 64 query rows of a unit against its tiles of keys, from the last tile to the first.
//
// The scores of a tile are issued together with the product of weights and values of the previous tile, so that the
// tensor cores are busy during the softmax. The two warpgroups alternate, so that the softmax of one overlaps the
// matrix products of the other.
//
// Bits: The sums of a row depend on the row, its keys and the bounds of tiles, which begin at its first key.
// Tiles that are completely masked for a row come before its own tiles and leave its sums at zero. Masked keys inside
// a tile have weight zero.
#pragma once

#include "ptx/matrix.cuh"
#include "ptx/wgmma.cuh"
#include "sm90/dense/softmax.cuh"

namespace sparrow_dense {

// Declares accumulators as uninitialised registers, which the first product overwrites.
template <int N>
__device__ __forceinline__ void declare(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
        asm volatile("" : "=f"(d[i]));
    }
}

// Returns the operand descriptor advanced by `bytes`. The assembly changes only the lower word, so that the compiler
// does not compute the upper word again.
__device__ __forceinline__ u64 further(u64 operand, u32 bytes) {
    u64 r;
    asm("mov.b64 %0, {%1, %2};" : "=l"(r)
        : "r"(static_cast<u32>(operand) + bytes / 16), "r"(static_cast<u32>(operand >> 32)));
    return r;
}

// The fields of a unit that a math warpgroup has in registers. All other fields are read in the record.
struct Unit {
    u32 slot;   // slot of the unit's record in the ring
    i32 last;   // last tile in which a row of this warpgroup attends to keys; -1: none
    i32 skip;   // tiles after `last`, which only the other warpgroup computes; -1: there is no further unit
    i32 whole;  // leading tiles of which all rows of this warpgroup attend to every key
};

template <class S>
struct MathGroup {
    static constexpr int Scores = S::Keys / 2;  // scores per thread
    static constexpr int Outputs = S::Columns / 2;

    const DenseAttendArgs& args;
    Storage<S>& shared;
    const Corner at;
    const float scale;
    Cursor<kStages> keys, values;
    Softmax softmax;
    Cursor<kRecords> ring;
    u32 units = 0;             // units with keys that were processed
    u32 held[S::Held * 4][4];  // A operands of the first columns of this unit's queries

    __device__ __forceinline__ MathGroup(const DenseAttendArgs& a, Storage<S>& s, i32 group) : args(a), shared(s),
        at(group), scale(a.score_scale) {}

    // Loads the first columns of the queries into registers.
    __device__ __forceinline__ void hold_queries() {
        const u32 lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
        const u32 address = ptx::shared_address(shared.q[at.group]) + row * kTileRowBytes;
#pragma unroll
        for (int i = 0; i < S::Held * 4; ++i) {
            const u32 chunk = i % 4 * 2 + lane / 16;
            ptx::load_matrices(held[i], address + i / 4 * S::QueryTileBytes + ((chunk ^ (row & 7)) << 4));
        }
    }

    // Issues the scores of the next tile of keys. The first Held tiles of the queries come from registers.
    template <int Held>
    __device__ __forceinline__ void multiply_scores(float (&s)[Scores]) {
        const u64 q = ptx::operand_128b(ptx::shared_address(shared.q[at.group])),
            k = ptx::operand_128b(ptx::shared_address(shared.k[keys.stage]));
        ptx::mma_pin(s);
        ptx::mma_fence();
#pragma unroll
        for (int i = 0; i < S::Query * 4; ++i) {
            const u64 tile = further(k, i / 4 * S::KeyTileBytes + i % 4 * 32);
            if (i < Held * 4) {
                ptx::Wide<S::Keys>::scores(s, held[i], tile, i != 0);
            } else {
                ptx::Wide<S::Keys>::scores(s, further(q, i / 4 * S::QueryTileBytes + i % 4 * 32), tile, i != 0);
            }
        }
        ptx::mma_commit();
    }

    // Issues the product of the weights and the next tile of values.
    __device__ __forceinline__ void multiply_values(float (&o)[Outputs], const u32 (&p)[S::Steps][4], bool first) {
        const u64 v = ptx::operand_128b_across(ptx::shared_address(shared.v[values.stage]), S::KeyTileBytes);
        ptx::mma_pin(o);
        ptx::mma_fence();
#pragma unroll
        for (int step = 0; step < S::Steps; ++step) {
            ptx::Wide<S::Columns>::values(o, p[step], further(v, step * 16 * kTileRowBytes), step > 0 || !first);
        }
        ptx::mma_commit();
    }

    // Sets the values of keys that are masked for all rows of the unit to zero. They may be NaN, and zero times NaN is
    // NaN. Both math warpgroups write the same zeros before their own products.
    __device__ __forceinline__ void clear_values(i32 seen) {
        const u32 tile = ptx::shared_address(shared.v[values.stage]);
        const u32 bytes = (S::Keys - seen) * kTileRowBytes;
#pragma unroll 1
        for (int c = 0; c < S::Value; ++c) {
            const u32 from = tile + c * S::KeyTileBytes + seen * kTileRowBytes;
#pragma unroll 1
            for (u32 b = threadIdx.x % 128 * 16; b < bytes; b += 128 * 16) {
                asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(from + b), "r"(0) : "memory");
            }
        }
        ptx::fence_async_proxy();
        at.group == 0 ? ptx::group_sync<1, 128>() : ptx::group_sync<2, 128>();
    }

    // The two warpgroups issue matrix products alternately. Both must call take_turn equally often.
    __device__ __forceinline__ void take_turn() const {
        at.group == 0 ? ptx::group_sync<3, 256>() : ptx::group_sync<4, 256>();
    }
    __device__ __forceinline__ void give_turn() const {
        at.group == 0 ? group_arrive<4, 256>() : group_arrive<3, 256>();
    }

    // Converts the scores of tile t to weights in place. The scores must be complete.
    __device__ __forceinline__ void weigh(float (&s)[Scores], const Unit& u, i32 t) {
        ptx::mma_pin(s);
        arrive(shared.k_empty[keys.stage]);
        keys.advance();
        if (t >= u.whole) {
            const i32 row = at.group * kGroupRows + at.row, first = t * S::Keys;
            mask_scores(s, record(u).lens[row] - first, record(u).lens[row + 8] - first, at.pair);
        }
        softmax.weigh(s, scale);
    }

    // Releases the values buffer of a completed product.
    __device__ __forceinline__ void free_values(float (&o)[Outputs]) {
        ptx::mma_pin(o);
        arrive(shared.v_empty[values.stage]);
        values.advance();
    }

    // Waits for the product in flight and rescales its sums to the current bases.
    __device__ __forceinline__ void finish_product(float (&o)[Outputs]) {
        ptx::mma_wait<0>();
        free_values(o);
        softmax.rescale(o);
    }

    __device__ __forceinline__ const volatile Record& record(const Unit& u) const { return shared.records[u.slot]; }

    // Returns the next unit. Its record remains valid until it is released. It is released only after all values read
    // from it have been used, because an arrival can complete before an earlier load whose result is not used yet.
    __device__ __forceinline__ Unit next_unit() {
        wait(shared.record_full[ring.stage], ring.parity);
        Unit n{ring.stage, -1, -1, 0};
        const i32 tiles = record(n).tiles;
        if (tiles >= 0) {
            n.last = tiles_of<S>(record(n).most[at.group]) - 1;
            n.skip = tiles - 1 - n.last;
            n.whole = record(n).whole[at.group];
        }
        ring.advance();
        return n;
    }

    __device__ __forceinline__ void release(const Unit& u) { arrive(shared.record_empty[u.slot]); }

    // Returns the number of keys from the start of this warpgroup's last tile to the last key of any row of the unit.
    // It exceeds S::Keys if the other warpgroup has later tiles.
    __device__ __forceinline__ i32 seen(const Unit& u) const { return max(record(u).most[0], record(u).most[1]) -
        u.last * S::Keys; }

    __device__ __forceinline__ void skip_keys() {
        wait(shared.k_full[keys.stage], keys.parity);
        arrive(shared.k_empty[keys.stage]);
        keys.advance();
    }

    __device__ __forceinline__ void skip_values(bool turn) {
        wait(shared.v_full[values.stage], values.parity);
        arrive(shared.v_empty[values.stage]);
        values.advance();
        if (turn) {
            take_turn();
            give_turn();
        }
    }

    // Advances n to the next unit with keys for this warpgroup and issues its first scores. Returns false if there is
    // none. Skips units in which the rows of this warpgroup have no key, and last tiles that only the other warpgroup
    // computes; take_turn is called for skipped tiles too.
    __device__ __forceinline__ bool start(float (&s)[Scores], Unit& n) {
#pragma unroll 1
        while (true) {
            if (n.skip < 0) {
                return false;
            }
            if (n.last >= 0 || n.skip > 0) {
                wait(shared.q_full[at.group], units++ & 1);
            }
#pragma unroll 1
            for (i32 t = 0; t < n.skip; ++t) {
                skip_keys();
                skip_values(t > 0 || n.last >= 0);
            }
            if (n.last >= 0) {
                break;
            }
            if (n.skip > 0) {
                arrive(shared.q_empty[at.group]);
            }
            write_zeros<S>(args, at, record(n).row, record(n).rows, record(n).head);
            release(n);
            n = next_unit();
        }
        wait(shared.k_full[keys.stage], keys.parity);
        multiply_scores<0>(s);
        ptx::mma_wait<0>();
        ptx::mma_pin(s);
        return true;
    }

    // Processes the tiles of a unit in which rows of this warpgroup have keys. The first scores have been issued before
    // the call; the product of the last weights is issued at the end. The wait for a product is at the start of the
    // loop, and the softmax that overlaps the product is at its end: within one basic block the compiler would move the
    // wait before the softmax.
    __device__ __forceinline__ void run_unit(float (&s)[Scores], float (&o)[Outputs], const Unit& u) {
        u32 p[S::Steps][4];
        softmax.reset();
        hold_queries();
        weigh(s, u, u.last);
#pragma unroll 1
        for (i32 t = u.last - 1; t >= 0; --t) {
            const bool first = t == u.last - 1;
            if (!first) {
                finish_product(o);
            }
            pack_weights(p, s);
            wait(shared.k_full[keys.stage], keys.parity);
            take_turn();
            multiply_scores<S::Held>(s);
            wait(shared.v_full[values.stage], values.parity);
            if (first && seen(u) < S::Keys) {
                clear_values(seen(u));
            }
            multiply_values(o, p, first);
            give_turn();
            ptx::mma_wait<1>();
            weigh(s, u, t);
        }
        arrive(shared.q_empty[at.group]);
        if (u.last > 0) {
            finish_product(o);
        }
        pack_weights(p, s);
        wait(shared.v_full[values.stage], values.parity);
        if (u.last == 0 && seen(u) < S::Keys) {
            clear_values(seen(u));
        }
        multiply_values(o, p, u.last == 0);
    }

    __device__ __forceinline__ void write(const Unit& u, const float (&o)[Outputs]) {
        float inverse[2];
        softmax.finish(inverse);
        const i32 row = record(u).row, rows = record(u).rows, head = record(u).head;
        write_rows<S>(args, at, row, rows, head, o, inverse);
        write_lse(args, at, row, rows, head, softmax.base, softmax.sum);
        release(u);
    }

    // Processes all units. The first scores of a unit are issued after the last product of the previous unit, so that
    // they run while its result is written. If there is no next unit, or more than one tile must be skipped before
    // it, products of arbitrary shared memory are issued instead and their result is ignored. The reason is that the
    // compiler serialises products whose execution depends on a condition.
    __device__ __forceinline__ void run() {
        if (at.group == 1) {
            give_turn();
        }
        float s[Scores], o[Outputs];
        declare(s);
        declare(o);
        Unit n = next_unit();
        bool begun = false;  // the scores of the last tile were issued
#pragma unroll 1
        while (true) {
            if (!begun && !start(s, n)) {
                return;
            }
            const Unit u = n;
            run_unit(s, o, u);
            n = next_unit();
            begun = n.last >= 0 && n.skip <= 1;
            if (begun) {
                wait(shared.q_full[at.group], units++ & 1);
                if (n.skip > 0) {
                    skip_keys();
                }
                wait(shared.k_full[keys.stage], keys.parity);
            }
            multiply_scores<0>(s);
            ptx::mma_wait<1>();
            free_values(o);
            if (begun && n.skip > 0) {
                skip_values(true);
            }
            write(u, o);
            ptx::mma_wait<0>();
            ptx::mma_pin(s);
        }
    }
};

}  // namespace sparrow_dense
