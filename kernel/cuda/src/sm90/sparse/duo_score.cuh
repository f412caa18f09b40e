// Two thread blocks per unit: the score group, which computes scores and weights.
#pragma once

#include "sm90/sparse/duo_storage.cuh"
#include "sm90/sparse/softmax.cuh"

namespace sparrow_sparse {

// The score group: scores and weights of the key blocks that this thread block owns.
template <class Rows, class Storage = DuoStorage>
struct DuoScores : Softmax<typename Rows::Type, key_shift<Rows>()> {
    using Type = typename Rows::Type;
    using Base = Softmax<Type, key_shift<Rows>()>;
    using Base::args, Base::at, Base::m0, Base::m1, Base::max0, Base::max1, Base::sum0, Base::sum1;
    Storage& shared;
    const DuoUnit& unit;

    __device__ __forceinline__ DuoScores(const SparseAttendArgs& a, Storage& s, const DuoUnit& u) : Base(a),
        shared(s), unit(u) {}

    __device__ __forceinline__ u32 other(const void* p) const { return ptx::peer_address(ptx::shared_address(p),
        unit.rank ^ 1); }

    // Sends f32 values a and b, of heads row and row + 8, to array `place` [64] of the other thread block.
    __device__ __forceinline__ void send_heads(float* place, u64& barrier, float a, float b) const {
        __syncwarp();  // a fast reply of the other thread block overwrites the values that lanes of this warp read
        if (at.lane % 4 == 0) {
            ptx::peer_send(other(place + at.row), __float_as_uint(a), other(&barrier));
            ptx::peer_send(other(place + at.row + 8), __float_as_uint(b), other(&barrier));
        }
    }

    // Adds the sums of key block n, which the other thread block owns.
    __device__ __forceinline__ void add_other(i32 n) {
        ptx::barrier_wait(ptx::shared_address(&shared.other_full), n >> 1 & 1);
        const LaneSums v = *const_cast<const LaneSums*>(&shared.sums[threadIdx.x % 128]);
        sum0 = fmaf(sum0, v.f0, v.t0);
        sum1 = fmaf(sum1, v.f1, v.t1);
        // Zero, but only after the sums have been read: reads that wait for the port of shared memory can take longer
        // than the arrival and the next sums, which the other thread block then sends at once.
        const u32 after = (__float_as_uint(v.t0) | __float_as_uint(v.t1) | __float_as_uint(v.f0) |
            __float_as_uint(v.f1)) & static_cast<u32>(args.rows >> 31);
        arrive_at_other(shared.sums_free, unit.rank, after);
    }

    // Receives the base of the exponents after key block n, which the other thread block owns.
    __device__ __forceinline__ void receive_base(i32 n) {
        ptx::barrier_wait(ptx::shared_address(&shared.base_full), static_cast<u32>(n) >> 1 & 1);
        m0 = read(shared.base[at.row]);
        m1 = read(shared.base[at.row + 8]);
    }

    // Publishes the weights, sums and factors of a key block of this thread block to the value groups of both thread
    // blocks.
    __device__ __forceinline__ void publish(const u32 (&p)[4][4], const LaneSums& sums, u32 parity) {
        const u32 t = threadIdx.x % 128;
        // The weights overwrite the rotary tile of the keys, which the scores of other warps may still read.
        ptx::group_sync<1, 128>();
        const u32 row = at.warp * 16 + at.lane % 16, base = shared.own_weights();
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            ptx::store_fragments(base + tile_byte(row, 2 * j + at.lane / 16), p[j]);
        }
        shared.own_sums[t] = sums;
        ptx::fence_async_proxy();
        ptx::barrier_arrive(ptx::shared_address(&shared.own_full));
        const u32 bar = other(&shared.other_full);
        __syncwarp();
        if (at.lane == 0) {
            const u32 piece = at.warp * 16 * 128;
            ptx::peer_copy(other(shared.weights) + piece, base + piece, 16 * 128, bar);
        }
        ptx::barrier_wait(ptx::shared_address(&shared.sums_free), parity ^ 1);
        ptx::peer_send(other(&shared.sums[t]),
            make_uint4(__float_as_uint(sums.t0), __float_as_uint(sums.t1), __float_as_uint(sums.f0),
                __float_as_uint(sums.f1)), bar);
    }

    __device__ __forceinline__ void run() {
        m0 = m1 = max0 = max1 = kLowest;
        sum0 = sum1 = 0.0f;
        float s[32];
        u32 p[4][4];
        ptx::barrier_wait(ptx::shared_address(&shared.q_full), 0);
#pragma unroll 1
        for (i32 n = static_cast<i32>(unit.rank); n < unit.blocks; n += 2) {
            const u32 parity = static_cast<u32>(n) >> 1 & 1;
            ptx::barrier_wait(ptx::shared_address(&shared.k_full[0]), parity);
            ptx::fence_async_proxy();
            ptx::mma_pin(s);
            ptx::mma_fence();
            multiply_tiles<Rows, 0, kHalfTiles>(s, shared.q, shared.k);
            ptx::barrier_wait(ptx::shared_address(&shared.k_full[1]), parity);
            ptx::fence_async_proxy();
            ptx::mma_fence();
            multiply_tiles<Rows, kHalfTiles, Rows::Tiles>(s, shared.q, shared.k);
            const u64 valid = valid_keys(shared.valid);
            ptx::mma_wait<0>();
            ptx::mma_pin(s);
            if (unit.rank == 1) {
                arrive(shared.left_free);
            }
            if (n > 0) {  // the other thread block had the previous key block
                receive_base(n - 1);
                if (threadIdx.x % 128 == 0 && n + 1 < unit.blocks) {
                    ptx::barrier_expect(ptx::shared_address(&shared.base_full), kBaseBytes);
                }
            }
            LaneSums sums;
            this->rebase(s, valid, sums.f0, sums.f1);
            send_heads(shared.base, shared.base_full, m0, m1);
            sums.t0 = sums.t1 = 0.0f;
            this->template weigh_keys<0>(s, p[0], sums.t0, sums.t1);
            this->template weigh_keys<1>(s, p[1], sums.t0, sums.t1);
            this->template weigh_keys<2>(s, p[2], sums.t0, sums.t1);
            this->template weigh_keys<3>(s, p[3], sums.t0, sums.t1);
            publish(p, sums, parity);
            if (n > 0) {
                add_other(n - 1);
            }
            sum0 = fmaf(sum0, sums.f0, sums.t0);
            sum1 = fmaf(sum1, sums.f1, sums.t1);
        }
        if (!unit.own(unit.blocks - 1)) {
            receive_base(unit.blocks - 1);
            add_other(unit.blocks - 1);
        }
        this->gather();
        finish(sum0 > 0.0f ? 1.0f / sum0 : 0.0f, sum1 > 0.0f ? 1.0f / sum1 : 0.0f);
    }

    // The end of the segment or row: writes the factors of the output, and the softmax statistics of the result.
    __device__ __forceinline__ void finish(float f0, float f1) {
        if (at.lane % 4 == 0) {
            shared.final[at.row] = f0;
            shared.final[at.row + 8] = f1;
        }
        ptx::barrier_arrive(ptx::shared_address(&shared.final_full));
        if (unit.rank == 1) {
            send_heads(shared.largest, shared.largest_full, max0, max1);
            return;
        }
        ptx::barrier_wait(ptx::shared_address(&shared.largest_full), 0);
        if (at.lane % 4 == 0) {
            save(unit.head + at.row, m0, fmaxf(max0, read(shared.largest[at.row])), sum0);
            save(unit.head + at.row + 8, m1, fmaxf(max1, read(shared.largest[at.row + 8])), sum1);
        }
    }

    __device__ __forceinline__ void save(i32 head, float m, float largest, float sum) const {
        if (head >= args.heads) {
            return;
        }
        if (Rows::kTwoStreams && args.segments == 1) {
            write_stats(args, unit.row, head, m, largest, sum);
        } else {
            write_part_stats(args, static_cast<i64>(unit.row) * args.segments + unit.segment, head, m, largest, sum);
        }
    }
};

}  // namespace sparrow_sparse
