// The score group: scores, softmax and columns 0-255 of the output.
//
// The order of instructions keeps the tensor cores busy. The scores of the next block are issued after the product of
// a block. The product of the value group overlaps the softmax. The product of this group is issued in two halves,
// the first while the weights of the second are still computed. Weights are published before the next scores are
// issued, so that the left half is freed one product earlier.
#pragma once

#include "sm90/sparse/fetch.cuh"
#include "sm90/sparse/softmax.cuh"

namespace sparrow_sparse {

// Rows defines the type of the tiles (Type), their number, and how many of the last query tiles stay bf16.
template <class Rows>
struct ScoreGroup : Softmax<typename Rows::Type, key_shift<Rows>()> {
    using Type = typename Rows::Type;
    static constexpr int Tiles = Rows::Tiles;

    using Base = Softmax<Type, key_shift<Rows>()>;
    using Base::args, Base::at, Base::m0, Base::m1, Base::max0, Base::max1, Base::sum0, Base::sum1;
    Storage<Tiles>& shared;
    u32 done = 0, units = 0, queries = 0;  // key blocks, units with keys, and queries of 64 heads that were processed
    // With Rows::asks_queries(), this group loads all queries but the first. held is the number (queries_of) of the
    // queries that are in shared memory or on their way. If waiting is set, they have not been waited for.
    u32 held = 0;
    bool waiting = false;
    float sink0, sink1;  // sinks of heads row and row + 8, base 2, loaded before the last block of a unit

    __device__ __forceinline__ ScoreGroup(const SparseAttendArgs& a, Storage<Tiles>& s) : Base(a), shared(s) {}

    // Issue the scores of the block in buffer b: ask_left the products of tiles 0-3, ask_right the products of the
    // other tiles.
    __device__ __forceinline__ void ask_left(float (&s)[32], u32 b, u32 parity) {
        ptx::barrier_wait(ptx::shared_address(&shared.k_full[b][0]), parity);
        ptx::fence_async_proxy();
        ptx::mma_pin(s);
        ptx::mma_fence();
        multiply_tiles<Rows, 0, kPartTiles[1]>(s, shared.q, shared.k[b]);
    }

    __device__ __forceinline__ void ask_right(float (&s)[32], u32 b, u32 parity) {
        ptx::barrier_wait(ptx::shared_address(&shared.k_full[b][1]), parity);
        ptx::fence_async_proxy();
        ptx::mma_fence();
        multiply_tiles<Rows, kPartTiles[1], Tiles>(s, shared.q, shared.k[b]);
    }

    // Sets the factors of the scores of a block; the second stream begins in `until` blocks.
    __device__ __forceinline__ void shift_block(i32 until) {
        if constexpr (key_shift<Rows>() != 0) {
            this->set_shift(Rows::is_entry(args.streams[until > 0 ? 0 : 1]));
        }
    }

    // Converts the scores of a block to weights and issues the product of the weights and the left columns. The
    // product is issued in two halves, so that the first runs while the weights of the second are computed. first
    // means the first block of the unit.
    __device__ __forceinline__ void weigh(float (&s)[32], u32 (&p)[4][4], float (&o)[128], u64 valid, u32 b, bool first,
        float& f0, float& f1) {
        const bool moved = this->rebase(s, valid, f0, f1);
        float t0 = 0.0f, t1 = 0.0f;
        this->template weigh_keys<0>(s, p[0], t0, t1);
        this->template weigh_keys<1>(s, p[1], t0, t1);
        if (moved && !first) {
            rescale(o, f0, f1);
        }
        const u64 v = ptx::operand_128b_across(ptx::shared_address(shared.k[b]), kTileBytes);
        ptx::mma_pin(o);
        ptx::mma_fence();
        multiply_values<Rows>(o, p[0], v, !first);
        multiply_values<Rows>(o, p[1], v + 16 * 128 / 16, 1);
        ptx::mma_commit();
#pragma unroll
        for (int i = 16; i < 32; ++i) {
            asm volatile("" : "+f"(s[i]));  // keeps the compiler from scheduling the following code earlier
        }
        this->template weigh_keys<2>(s, p[2], t0, t1);
        this->template weigh_keys<3>(s, p[3], t0, t1);
        ptx::mma_fence();
        multiply_values<Rows>(o, p[2], v + 2 * 16 * 128 / 16, 1);
        multiply_values<Rows>(o, p[3], v + 3 * 16 * 128 / 16, 1);
        ptx::mma_commit();
        sum0 = fmaf(sum0, f0, t0);
        sum1 = fmaf(sum1, f1, t1);
    }

    // Publishes weights and factors to the value group.
    __device__ __forceinline__ void publish(const u32 (&p)[4][4], float f0, float f1, u32 b) {
        if constexpr (Tiles == 9) {
            // The weights overwrite the rotary tile of the keys, which the scores of other warps may still read.
            ptx::group_sync<1, 128>();
        }
        const u32 row = at.warp * 16 + at.lane % 16, base = shared.weights_at(b);
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            ptx::store_fragments(base + tile_byte(row, 2 * j + at.lane / 16), p[j]);
        }
        if (at.lane % 4 == 0) {
            shared.factor[b][at.row] = f0;
            shared.factor[b][at.row + 8] = f1;
        }
        ptx::fence_async_proxy();
        ptx::barrier_arrive(ptx::shared_address(&shared.weights_full[b]));
    }

    // Computes the scores, weights and left output columns of a unit. It publishes the weights of a block to the value
    // group shortly before the scores of the next block are complete.
    __device__ __forceinline__ void run_unit(const Unit& unit, u32 u, float (&o)[128]) {
        float s[32], f0, f1;
        u32 p[4][4];
        if constexpr (Rows::asks_queries()) {
            need_queries(u);
        } else if (unit.fresh) {
            ptx::barrier_wait(ptx::shared_address(&shared.q_full), queries & 1);
            ++queries;
        }
        ask_left(s, done & 1, done >> 1 & 1);
        ask_right(s, done & 1, done >> 1 & 1);
        u64 valid = valid_keys(shared.valid[done & 1]);
        arrive(shared.scores_done[done & 1]);
        ptx::mma_wait<0>();
        ptx::mma_pin(s);
        bool first = true;
        i32 until = unit.first_blocks - unit.block;  // blocks until the second stream
#pragma unroll 1
        for (i32 left = unit.blocks - 1; left > 0; --left) {
            const u32 b = done & 1;
            shift_block(until--);
            weigh(s, p, o, valid, b, first, f0, f1);
            first = false;
            ++done;
            publish(p, f0, f1, b);
            ask_left(s, done & 1, done >> 1 & 1);
            ptx::mma_wait<1>();
            ptx::mma_pin(o);
            arrive(shared.k_empty[b][0]);
            ask_right(s, done & 1, done >> 1 & 1);
            valid = valid_keys(shared.valid[done & 1]);
            arrive(shared.scores_done[done & 1]);
            ptx::mma_wait<0>();
            ptx::mma_pin(s);
        }
        if constexpr (Rows::asks_queries()) {
            ask_next_queries(u);
        } else if (unit.last) {
            arrive(shared.q_empty);
        }
        if (args.segments == 1) {
            sink0 = sink_of(args, unit.head + at.row);
            sink1 = sink_of(args, unit.head + at.row + 8);
        }
        shift_block(until);
        weigh(s, p, o, valid, done & 1, first, f0, f1);
        publish(p, f0, f1, done & 1);
        ptx::mma_wait<0>();
        ptx::mma_pin(o);
        arrive(shared.k_empty[done & 1][0]);
        ++done;
        this->gather();
    }

    __device__ __forceinline__ void run() {
        const Share share(args);
        Lengths lengths(args, share, share.first);
#pragma unroll 1
        for (u32 u = share.first; u < share.end; u += share.step) {
            m0 = m1 = max0 = max1 = kLowest;
            sum0 = sum1 = 0.0f;
            float o[128];
            declare(o);
            {
                const Unit unit = unit_of(args, share, u, lengths);
                if (unit.blocks == 0) {
                    lengths = Lengths(args, share, u + share.step);
                    if (args.segments == 1) {  // the combine kernel reads only segments that have keys
                        write_zeros(args, unit, at, 0);
                        save(unit);
                    }
                    continue;
                }
                run_unit(unit, u, o);
            }
            // Only the number of the unit is kept while it runs, to save registers.
            asm volatile("" : "+r"(u));
            const Unit unit = unit_of(args, share, u, lengths);
            lengths = Lengths(args, share, u + share.step);
            float f0, f1;
            unit_factors(args, sink0, sink1, m0, m1, sum0, sum1, f0, f1);
            const u32 b = units & 1;
            ptx::barrier_wait(ptx::shared_address(&shared.final_empty[b]), (units >> 1 & 1) ^ 1);
            if (at.lane % 4 == 0) {
                shared.final[b][at.row] = f0;
                shared.final[b][at.row + 8] = f1;
            }
            ptx::barrier_arrive(ptx::shared_address(&shared.final_full[b]));
            ++units;
            write_output<Type, interleaved<Rows>()>(args, unit, at, 0, o, f0, f1);
            save(unit);
            if constexpr (Rows::asks_queries()) {
                if (waiting) {
                    Queries<Rows>::convert(shared, threadIdx.x);
                }
            }
        }
    }

    // Returns the number of the queries of unit u: row * head groups + head group.
    __device__ __forceinline__ u32 queries_of(u32 u) const {
        return number_of(args, u) / static_cast<u32>(args.segments);
    }

    // Requests queries, which overwrite the previous ones.
    __device__ __forceinline__ void ask_queries(u32 number) {
        const u32 groups = head_groups(args);
        Queries<Rows>::ask(args, shared, static_cast<i32>(number / groups), static_cast<i32>(number % groups) * kHeads,
            threadIdx.x);
        held = number;
        waiting = true;
    }

    __device__ __forceinline__ void wait_queries() {
        ptx::barrier_wait(ptx::shared_address(&shared.q_full), queries & 1);
        ++queries;
        waiting = false;
    }

    // Waits for the queries of unit u. Queries::take_first loads those of the first unit with keys. Later ones have
    // been requested by ask_next_queries, unless a unit without keys precedes unit u.
    __device__ __forceinline__ void need_queries(u32 u) {
        const u32 number = queries_of(u);
        if (queries == 0) {
            held = number;
            wait_queries();
            return;
        }
        if (waiting) {
            wait_queries();
        }
        if (held != number) {
            ptx::group_sync<1, 128>();  // the scores of all warps are complete
            ask_queries(number);
            Queries<Rows>::convert(shared, threadIdx.x);
            wait_queries();
        }
    }

    // Requests the queries of the unit after unit u, whose scores are complete, if they are different.
    __device__ __forceinline__ void ask_next_queries(u32 u) {
        const Share share(args);
        const u32 next = u + share.step;
        if (next < share.end && queries_of(next) != held) {
            ptx::group_sync<1, 128>();  // the scores of all warps are complete
            ask_queries(queries_of(next));
        }
    }

    __device__ __forceinline__ void save(const Unit& unit) const {
        if (at.lane % 4 == 0) {
            save(unit, unit.head + at.row, m0, max0, sum0);
            save(unit, unit.head + at.row + 8, m1, max1, sum1);
        }
    }

    __device__ __forceinline__ void save(const Unit& unit, i32 head, float m, float largest, float sum) const {
        if (head >= args.heads) {
            return;
        }
        if (args.segments == 1) {
            write_stats(args, unit.row, head, m, largest, sum);
        } else {
            write_part_stats(args, static_cast<i64>(unit.row) * args.segments + unit.segment, head, m, largest, sum);
        }
    }
};

}  // namespace sparrow_sparse
