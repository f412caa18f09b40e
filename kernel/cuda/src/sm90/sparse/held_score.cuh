// The score group of the kernel that holds queries in registers: scores and softmax.
//
// The scores of 64 keys take half of the tensor-core time of a block, and the softmax takes about as long as the
// scores. The value groups multiply a block while this group computes the softmax of the next block.
#pragma once

#include "ptx/matrix.cuh"
#include "sm90/sparse/held_storage.cuh"
#include "sm90/sparse/softmax.cuh"

namespace sparrow_sparse {

template <int Tiles>
struct HeldScoreGroup : Softmax<ptx::Bf16> {
    using Shape = HeldShape<Tiles>;
    static constexpr int kProducts = kQuarterTiles * 4;  // products per quarter, 16 columns each

    using Storage = HeldStorage<Tiles>;

    Storage& shared;
    u32 entry = 0, units = 0;  // ring entries (key blocks or queries) and units with keys that were processed
    // A operands [64 heads][16 columns] of the first three quarters of the queries
    u32 q[kHeldQuarters * kProducts][4];

    __device__ __forceinline__ HeldScoreGroup(const SparseAttendArgs& a, Storage& s) : Softmax(a), shared(s) {}

    // Returns this lane's byte offset for ldmatrix and stmatrix in columns 16 * j to 16 * j + 15 of a tile.
    __device__ __forceinline__ u32 fragment(int j) const {
        return tile_byte(at.warp * 16 + at.lane % 16, at.lane / 16) ^ (j * 32);
    }

    __device__ __forceinline__ void copy_fragments(u32 from, u32 to) const {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            u32 w[4];
            ptx::load_matrices(w, from + fragment(j));
            ptx::store_fragments(to + fragment(j), w);
        }
    }

    // Waits until a quarter of the current entry is filled, and returns its index in the ring.
    __device__ __forceinline__ u32 wait_full(u32 part) const {
        const typename Storage::Quarter quarter(entry * kQuarters + part);
        ptx::barrier_wait(ptx::shared_address(&shared.full[quarter.at]), quarter.parity);
        return quarter.at;
    }

    __device__ __forceinline__ u32 side_tile() const {
        return ptx::shared_address(shared.side[typename Storage::Side(entry).at]);
    }

    // Waits until the value groups have read the side tile that the current entry is going to overwrite.
    __device__ __forceinline__ void wait_side() const {
        const typename Storage::Side side(entry);
        ptx::barrier_wait(ptx::shared_address(&shared.side_empty[side.at]), side.parity ^ 1);
    }

    // Arrives at the empty barrier of a quarter of the queries, after the reads of this thread.
    __device__ __forceinline__ void free_quarter(u32 part) {
        ptx::barrier_arrive(
            ptx::shared_address(&shared.empty[typename Storage::Quarter(entry * kQuarters + part).at]));
    }

    // Loads the queries of a unit: three quarters into registers, the last quarter and the rotary tile into shared.q.
    __device__ __forceinline__ void take_queries() {
#pragma unroll
        for (int part = 0; part < kHeldQuarters; ++part) {
            const u32 from = ptx::shared_address(shared.ring[wait_full(part)]);
#pragma unroll
            for (int i = 0; i < kProducts; ++i) {
                ptx::load_matrices(q[part * kProducts + i], from + i / 4 * kTileBytes + fragment(i % 4));
            }
        }
        const u32 from = ptx::shared_address(shared.ring[wait_full(kHeldQuarters)]);
        const u32 to = ptx::shared_address(shared.q);
        ptx::group_sync<1, 128>();  // all warps have finished the scores that read the previous queries
#pragma unroll
        for (u32 part = 0; part < kHeldQuarters; ++part) {
            free_quarter(part);
        }
        copy_fragments(from, to);
        copy_fragments(from + kTileBytes, to + kTileBytes);
        if constexpr (Shape::kRotary) {
            copy_fragments(side_tile(), to + 2 * kTileBytes);
        } else {
            wait_side();
        }
        ptx::fence_async_proxy();
        ptx::group_sync<1, 128>();
        free_quarter(kHeldQuarters);
        ptx::barrier_arrive(ptx::shared_address(&shared.side_empty[typename Storage::Side(entry).at]), 2);
        arrive(shared.scored[entry % kSteps]);
        ptx::barrier_arrive(ptx::shared_address(&shared.weighted[entry % kSteps]));
        ++entry;
    }

    // Computes the scores of a block and returns its valid bits. No fence follows the wait for the keys, because copies
    // that complete on the barrier are visible to the tensor cores.
    __device__ __forceinline__ u64 score(float (&s)[32]) {
        ptx::mma_pin(s);
        const u64 rest = ptx::operand_128b(ptx::shared_address(shared.q));
#pragma unroll
        for (int part = 0; part < kQuarters; ++part) {
            const u64 k = ptx::operand_128b(ptx::shared_address(shared.ring[wait_full(part)]));
            ptx::mma_fence();
#pragma unroll
            for (int i = 0; i < kProducts; ++i) {
                const u64 step = (i / 4 * kTileBytes + i % 4 * 32) / 16;
                if (part < kHeldQuarters) {
                    ptx::Bf16::multiply_64(s, q[part * kProducts + i], k + step, part > 0 || i > 0);
                } else {
                    ptx::Bf16::multiply_64(s, rest + step, k + step, 1);
                }
            }
        }
        if constexpr (Shape::kRotary) {
            const u64 k = ptx::operand_128b(side_tile());
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                ptx::Bf16::multiply_64(s, rest + (2 * kTileBytes + i * 32) / 16, k + i * 2, 1);
            }
        }
        ptx::mma_commit();
        const u64 valid = read(shared.valid[typename Storage::Turn(entry).at]);
        arrive(shared.scored[entry % kSteps]);
        ptx::mma_wait<0>();
        ptx::mma_pin(s);
        return valid;
    }

    template <int Step>
    __device__ __forceinline__ void weigh_step(const float (&s)[32], u32 weights, float& t0, float& t1) {
        u32 p[4];
        this->template weigh_keys<Step>(s, p, t0, t1);
        ptx::store_fragments(weights + fragment(Step), p);
    }

    __device__ __forceinline__ void weigh_block(const float (&s)[32], float& t0, float& t1) {
        t0 = t1 = 0.0f;
        weigh_step<0>(s, side_tile(), t0, t1);
        weigh_step<1>(s, side_tile(), t0, t1);
        weigh_step<2>(s, side_tile(), t0, t1);
        weigh_step<3>(s, side_tile(), t0, t1);
    }

    // Converts the scores of a block to weights and passes weights and factors to the value groups. first: this is the
    // first block of the unit.
    //
    // If args.max is null, the largest score is computed only if a score may exceed the base of its head by more than
    // kSlack. It cannot if the weights relative to the base sum to less than 255 in each lane, because no weight then
    // exceeds 2^8.
    __device__ __forceinline__ void weigh(float (&s)[32], u64 valid, bool first) {
        constexpr float kSmall = 255.0f;
        if constexpr (Shape::kRotary) {
            // The weights overwrite the rotary tile of the keys, which the scores of other warps may still read.
            ptx::group_sync<1, 128>();
        } else {
            wait_side();
        }
        mask(s, valid);
        float f0 = 1.0f, f1 = 1.0f, t0, t1;
        bool settled = false;
        if (args.max == nullptr && !first) {
            weigh_block(s, t0, t1);
            settled = !__any_sync(ptx::kFullMask, !(t0 < kSmall) || !(t1 < kSmall));
        }
        if (!settled) {
            rebase(s, ~0ull, f0, f1);
            weigh_block(s, t0, t1);
        }
        const u32 turn = typename Storage::Turn(entry).at;
        if (at.lane % 4 == 0) {
            shared.factor[turn][at.row] = f0;
            shared.factor[turn][at.row + 8] = f1;
        }
        // No proxy fence here, because it would wait for the stores; the value groups execute it after their wait.
        ptx::barrier_arrive(ptx::shared_address(&shared.weighted[entry % kSteps]));
        sum0 = fmaf(sum0, f0, t0);
        sum1 = fmaf(sum1, f1, t1);
        ++entry;
    }

    __device__ __forceinline__ void run() {
        each_held_unit(args, [&](u32, const HeldUnit& unit) {
            if (unit.blocks == 0) {
                return;
            }
            if (unit.fresh) {
                take_queries();
            }
            m0 = m1 = max0 = max1 = kLowest;
            sum0 = sum1 = 0.0f;
#pragma unroll 1
            for (i32 left = unit.blocks; left > 0; --left) {
                float s[32];
                declare(s);
                const u64 valid = score(s);
                weigh(s, valid, left == unit.blocks);
            }
            finish();
        });
    }

    // Passes the softmax statistics of a unit to the value groups.
    __device__ __forceinline__ void finish() {
        gather();
        ptx::barrier_wait(ptx::shared_address(&shared.final_empty), (units & 1) ^ 1);
        if (at.lane % 4 == 0) {
            shared.base[at.row] = m0;
            shared.base[at.row + 8] = m1;
            shared.sum[at.row] = sum0;
            shared.sum[at.row + 8] = sum1;
            shared.largest[at.row] = max0;
            shared.largest[at.row + 8] = max1;
        }
        ptx::barrier_arrive(ptx::shared_address(&shared.final_full));
        ++units;
    }
};

}  // namespace sparrow_sparse
