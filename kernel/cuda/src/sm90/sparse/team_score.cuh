// Several thread blocks a unit: scores and weights.
#pragma once

#include "sm90/sparse/softmax.cuh"
#include "sm90/sparse/team_storage.cuh"

namespace sparrow_sparse {

// The score group: scores and weights of own blocks. A round is one block of every member. The largest scores of all
// blocks of a round go to all members, and each works out alone, in the order of the blocks, what the exponents of
// each are relative to.
template <class Rows, int Team>
struct TeamScores : Softmax<typename Rows::Type> {
    using Type = typename Rows::Type;
    using Base = Softmax<Type>;
    using Base::args, Base::at, Base::m0, Base::m1, Base::max0, Base::max1;
    TeamStorage<Team>& shared;
    const TeamUnit<Team>& unit;
    u32 waits = 0;  // for a slot of weights

    __device__ __forceinline__ TeamScores(const SparseAttendArgs& a, TeamStorage<Team>& s, const TeamUnit<Team>& u)
        : Base(a), shared(s), unit(u) {}

    template <int From, int To>
    __device__ __forceinline__ void multiply_part(float (&s)[32]) const {
        const u64 q = ptx::operand_128b(ptx::shared_address(shared.q)),
            k = ptx::operand_128b(ptx::shared_address(shared.k));
#pragma unroll
        for (int i = From * 4; i < To * 4; ++i) {
            const u64 step = (i / 4 * kTileBytes + i % 4 * 32) / 16;
            if (i / 4 < Rows::Tiles - Rows::kBf16Tiles) {
                Type::multiply_64(s, q + step, k + step, i != 0);
            } else {
                ptx::Bf16::multiply_64(s, q + step, k + step, i != 0);
            }
        }
        ptx::mma_commit();
    }

    // Scores of the own block of a round, keys that do not count taken out; its largest scores go to all members.
    __device__ __forceinline__ void score(float (&s)[32], u32 round) {
        ptx::barrier_wait(ptx::shared_address(&shared.k_full[0]), round & 1);
        ptx::fence_async_proxy();
        ptx::mma_pin(s);
        ptx::mma_fence();
        multiply_part<0, kHalfTiles>(s);
        ptx::barrier_wait(ptx::shared_address(&shared.k_full[1]), round & 1);
        ptx::fence_async_proxy();
        ptx::mma_fence();
        multiply_part<kHalfTiles, Rows::Tiles>(s);
        u64 valid = 0;
        if (at.lane == 0) {
            valid = *const_cast<const volatile u64*>(&shared.valid);
        }
        valid = __shfl_sync(ptx::kFullMask, valid, 0);
        ptx::mma_wait<0>();
        ptx::mma_pin(s);
        arrive(shared.k_free);
        float high0, high1;
        this->peaks(s, valid, high0, high1);
#pragma unroll
        for (int d = 1; d < 4; d *= 2) {
            high0 = fmaxf(high0, __shfl_xor_sync(ptx::kFullMask, high0, d));
            high1 = fmaxf(high1, __shfl_xor_sync(ptx::kFullMask, high1, d));
        }
        const u64 both = static_cast<u64>(__float_as_uint(high1)) << 32 | __float_as_uint(high0);
        const u32 place = ptx::shared_address(&shared.largest[round & 1][unit.rank][at.row_pair()]);
        const u32 bar = ptx::shared_address(&shared.largest_full[round & 1]);
#pragma unroll
        for (u32 p = at.lane % 4; p < Team; p += 4) {  // four lanes hold the same
            ptx::peer_send(ptx::peer_address(place, p), both, ptx::peer_address(bar, p));
        }
    }

    // Weights, sums and factors of an own block to all value groups.
    __device__ __forceinline__ void publish(const u32 (&p)[4][4], const LaneSums& sums, i32 block) {
        const u32 slot = static_cast<u32>(block) % kWeightSlots;
        if (block >= kWeightSlots) {
            ptx::barrier_wait(ptx::shared_address(&shared.slot_free), waits & 1);
            ++waits;
        }
        const u32 row = at.warp * 16 + at.lane % 16, base = ptx::shared_address(shared.weights[slot]);
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            ptx::store_fragments(base + tile_byte(row, 2 * j + at.lane / 16), p[j]);
        }
        shared.sums[slot][threadIdx.x % 128] = sums;
        ptx::fence_async_proxy();
        ptx::barrier_arrive(ptx::shared_address(&shared.own_full));
        __syncwarp();
        if (at.lane < Team && at.lane != static_cast<i32>(unit.rank)) {  // a warp's rows to one member each
            constexpr u32 kPiece = 16 * 128, kSums = 32 * sizeof(LaneSums);
            const u32 w = base + at.warp * kPiece, s = ptx::shared_address(&shared.sums[slot][at.warp * 32]);
            const u32 bar = ptx::peer_address(ptx::shared_address(&shared.others_full[slot]), at.lane);
            ptx::peer_copy(ptx::peer_address(w, at.lane), w, kPiece, bar);
            ptx::peer_copy(ptx::peer_address(s, at.lane), s, kSums, bar);
        }
    }

    __device__ __forceinline__ void run() {
        m0 = m1 = max0 = max1 = kLowest;
        float s[32];
        ptx::barrier_wait(ptx::shared_address(&shared.q_full), 0);
#pragma unroll 1
        for (i32 round = 0; round < unit.rounds(); ++round) {
            const i32 block = unit.own(round), there = min(unit.blocks - round * Team, Team);
            const u32 bar = ptx::shared_address(&shared.largest_full[round & 1]);
            if (threadIdx.x % 128 == 0) {
                ptx::barrier_expect(bar, there * kBaseBytes);
            }
            if (block < unit.blocks) {
                score(s, round);
            }
            ptx::barrier_wait(bar, round >> 1 & 1);
            float own0 = 0.0f, own1 = 0.0f;  // what the exponents of the own block are relative to
            LaneSums sums{0.0f, 0.0f, 1.0f, 1.0f};
#pragma unroll
            for (i32 i = 0; i < Team; ++i) {
                if (i < there) {
                    const float2 high = *reinterpret_cast<const float2*>(&shared.largest[round & 1][i][at.row_pair()]);
                    max0 = fmaxf(max0, high.x);
                    max1 = fmaxf(max1, high.y);
                    const float n0 = high.x > m0 + kSlack ? high.x : m0, n1 = high.y > m1 + kSlack ? high.y : m1;
                    if (i == static_cast<i32>(unit.rank)) {
                        sums.f0 = exp2_fast(m0 - n0);
                        sums.f1 = exp2_fast(m1 - n1);
                        own0 = n0;
                        own1 = n1;
                    }
                    m0 = n0;
                    m1 = n1;
                }
            }
            if (block < unit.blocks) {
                const float end0 = m0, end1 = m1;
                u32 p[4][4];
                m0 = own0;
                m1 = own1;
                this->template weigh_keys<0>(s, p[0], sums.t0, sums.t1);
                this->template weigh_keys<1>(s, p[1], sums.t0, sums.t1);
                this->template weigh_keys<2>(s, p[2], sums.t0, sums.t1);
                this->template weigh_keys<3>(s, p[3], sums.t0, sums.t1);
                m0 = end0;
                m1 = end1;
                publish(p, sums, block);
            }
        }
        if (at.lane % 4 == 0) {
            shared.base[at.row] = m0;
            shared.base[at.row + 8] = m1;
            shared.highest[at.row] = max0;
            shared.highest[at.row + 8] = max1;
        }
        ptx::barrier_arrive(ptx::shared_address(&shared.final_full));
    }
};

}  // namespace sparrow_sparse
