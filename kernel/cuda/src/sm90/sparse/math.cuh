// The two math warpgroups.
//
// The score group multiplies queries by a block of keys, turns scores into weights, multiplies them, from its own registers, by columns 0-255
// of the block and hands them to the value group through shared memory, which does columns 256-511. Scores of the next block are asked for
// behind the product of the last one, and the value group's product runs under the softmax.
//
// Bits: a unit's result depends on its row, its keys and their order alone; so does the sum over segments (combine.cuh), because where a
// segment ends depends on nothing but the position.
#pragma once

#include "ptx/wgmma.cuh"
#include "sm90/sparse/output.cuh"

namespace sparrow_sparse {

// Exponents are relative to a number that follows the largest score only when that has outgrown it by this much, in base 2: the output is
// rescaled in few blocks, and weights reach 2^8 at most. What a row does depends on the row alone.
constexpr float kSlack = 8.0f;

// Multiplies the accumulator's two rows. Warps whose factors are all one leave it out, which changes no bit.
__device__ __forceinline__ void rescale(float (&o)[128], float f0, float f1) {
#pragma unroll
    for (int i = 0; i < 128; i += 4) {
        o[i] *= f0;
        o[i + 1] *= f0;
        o[i + 2] *= f1;
        o[i + 3] *= f1;
    }
}

// Declares accumulators whose first product overwrites them.
__device__ __forceinline__ void declare(float (&o)[128]) {
#pragma unroll
    for (int i = 0; i < 128; ++i) {
        asm volatile("" : "=f"(o[i]));
    }
}

// One arrival per warp, after what all its lanes have read.
__device__ __forceinline__ void arrive(u64& barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        ptx::barrier_arrive(ptx::shared_address(&barrier));
    }
}

// Rows says what the tiles hold (Type), how many, and how many of the last tiles of the queries stay bf16.
template <class Rows>
struct ScoreGroup {
    using Type = typename Rows::Type;
    static constexpr int Tiles = Rows::Tiles;

    const SparseAttendArgs& args;
    Storage<Tiles>& shared;
    Corner at;
    u32 done = 0, units = 0;  // blocks, and units with keys
    // Of heads row and row + 8: what exponents are relative to, the largest score, both in base 2, and this lane's part of the sum.
    float m0, m1, max0, max1, sum0, sum1;

    __device__ __forceinline__ ScoreGroup(const SparseAttendArgs& a, Storage<Tiles>& s) : args(a), shared(s) {}

    // Asks for the scores of the block in buffer b, in two batches. No fence follows the wait for copies: what completes on the barrier has
    // landed, and a fence here would wait for the products in flight.
    __device__ __forceinline__ void multiply_scores(float (&s)[32], u32 b, u32 parity) {
        const u64 q = ptx::operand_128b(ptx::shared_address(shared.q)), k = ptx::operand_128b(ptx::shared_address(shared.k[b]));
        ptx::barrier_wait(ptx::shared_address(&shared.k_full[b][0]), parity);
        ptx::mma_pin(s);
        ptx::mma_fence();
#pragma unroll
        for (int i = 0; i < kHalfTiles * 4; ++i) {
            Type::multiply_64(s, q + (i / 4 * kTileBytes + i % 4 * 32) / 16, k + (i / 4 * kTileBytes + i % 4 * 32) / 16, i != 0);
        }
        ptx::mma_commit();
        ptx::barrier_wait(ptx::shared_address(&shared.k_full[b][1]), parity);
        ptx::mma_fence();
#pragma unroll
        for (int i = kHalfTiles * 4; i < Tiles * 4; ++i) {
            const u64 step = (i / 4 * kTileBytes + i % 4 * 32) / 16;
            if (i / 4 < Tiles - Rows::kBf16Tiles) {
                Type::multiply_64(s, q + step, k + step, 1);
            } else {
                ptx::Bf16::multiply_64(s, q + step, k + step, 1);
            }
        }
        ptx::mma_commit();
    }

    // Queries to the type of the keys, in place. Values beyond half precision become its largest.
    __device__ __forceinline__ void convert_queries() {
        constexpr u32 kBytes = (Tiles - Rows::kBf16Tiles) * kTileBytes;
        const u32 base = ptx::shared_address(shared.q) + threadIdx.x % 128 * 16;
#pragma unroll 4
        for (u32 at = 0; at < kBytes; at += 128 * 16) {
            u32 w[4];
            asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(base + at));
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                w[i] = Type::pack(__uint_as_float(w[i] << 16), __uint_as_float(w[i] & 0xFFFF0000u));
            }
            asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(base + at), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
        }
        ptx::fence_async_proxy();
        ptx::group_sync<1, 128>();
    }

    // Scores to weights in place. f0, f1 become what the output so far is multiplied by; false when that is one in the whole warp.
    __device__ __forceinline__ bool softmax(float (&s)[32], u64 valid, float& f0, float& f1) {
        if (valid != ~0ull) {
            const float never = __int_as_float(0xFF800000);
            const u64 mine = valid >> (at.lane % 4 * 2);
#pragma unroll
            for (int i = 0; i < 32; ++i) {
                s[i] = mine >> (i / 4 * 8 + i % 2) & 1 ? s[i] : never;
            }
        }
        float high0 = s[0], high1 = s[2];
#pragma unroll
        for (int i = 0; i < 32; i += 4) {
            high0 = fmaxf(high0, fmaxf(s[i], s[i + 1]));
            high1 = fmaxf(high1, fmaxf(s[i + 2], s[i + 3]));
        }
        const float scale = args.score_scale;
        high0 *= scale;
        high1 *= scale;
        max0 = fmaxf(max0, high0);
        max1 = fmaxf(max1, high1);
        f0 = f1 = 1.0f;
        bool moved = false;
        if (__any_sync(ptx::kFullMask, high0 > m0 + kSlack || high1 > m1 + kSlack)) {  // some head of the warp has outgrown its base
            moved = true;
#pragma unroll
            for (int d = 1; d < 4; d *= 2) {
                high0 = fmaxf(high0, __shfl_xor_sync(ptx::kFullMask, high0, d));
                high1 = fmaxf(high1, __shfl_xor_sync(ptx::kFullMask, high1, d));
            }
            const float n0 = high0 > m0 + kSlack ? high0 : m0, n1 = high1 > m1 + kSlack ? high1 : m1;
            f0 = exp2_fast(m0 - n0);
            f1 = exp2_fast(m1 - n1);
            m0 = n0;
            m1 = n1;
        }
        float t0 = 0.0f, t1 = 0.0f;
#pragma unroll
        for (int i = 0; i < 32; i += 4) {
            s[i] = exp2_fast(fmaf(s[i], scale, -m0));
            s[i + 1] = exp2_fast(fmaf(s[i + 1], scale, -m0));
            s[i + 2] = exp2_fast(fmaf(s[i + 2], scale, -m1));
            s[i + 3] = exp2_fast(fmaf(s[i + 3], scale, -m1));
            t0 += s[i] + s[i + 1];
            t1 += s[i + 2] + s[i + 3];
        }
        sum0 = fmaf(sum0, f0, t0);
        sum1 = fmaf(sum1, f1, t1);
        return moved;
    }

    // Hands weights and factors to the value group.
    __device__ __forceinline__ void publish(const u32 (&p)[4][4], float f0, float f1, u32 b) {
        if constexpr (Tiles == 9) {
            ptx::group_sync<1, 128>();  // the weights take the place of keys that other warps' scores may still read
        }
        const u32 base = shared.weights_at(b) + at.lane % 4 * 4;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(base + tile_byte(at.row, j)), "r"(p[j / 2][j % 2 * 2]) : "memory");
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(base + tile_byte(at.row + 8, j)), "r"(p[j / 2][j % 2 * 2 + 1]) : "memory");
        }
        if (at.lane % 4 == 0) {
            shared.factor[b][at.row] = f0;
            shared.factor[b][at.row + 8] = f1;
        }
        ptx::fence_async_proxy();
        ptx::barrier_arrive(ptx::shared_address(&shared.weights_full[b]));
    }

    // A block from scores to the product of its weights and left columns, which is asked for; first: of the unit.
    __device__ __forceinline__ void weigh(float (&s)[32], u32 (&p)[4][4], float (&o)[128], u64 valid, u32 b, bool first) {
        float f0, f1;
        const bool moved = softmax(s, valid, f0, f1);
#pragma unroll
        for (int j = 0; j < 16; ++j) {
            p[j / 4][j % 4] = Type::pack(s[j * 2], s[j * 2 + 1]);
        }
        if (moved && !first) {
            rescale(o, f0, f1);
        }
        const u64 v = ptx::operand_128b_across(ptx::shared_address(shared.k[b]), kTileBytes);
        ptx::mma_pin(o);
        ptx::mma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            Type::multiply_256(o, p[step], v + step * 16 * 128 / 16, step > 0 || !first);
        }
        ptx::mma_commit();
        publish(p, f0, f1, b);
    }

    __device__ __forceinline__ u64 valid_keys(u32 b) const { return *const_cast<const volatile u64*>(&shared.valid[b]); }

    __device__ __forceinline__ void run_unit(const Unit& unit, float (&o)[128]) {
        float s[32];
        u32 p[4][4];
        ptx::barrier_wait(ptx::shared_address(&shared.q_full), units & 1);
        if constexpr (Rows::kBf16Tiles < Tiles) {
            convert_queries();
        }
        multiply_scores(s, done & 1, done >> 1 & 1);
        u64 valid = valid_keys(done & 1);
        ptx::mma_wait<0>();
        ptx::mma_pin(s);
        arrive(shared.scores_done[done & 1]);
        bool first = true;
#pragma unroll 1
        for (i32 left = unit.blocks - 1; left > 0; --left) {
            const u32 b = done & 1;
            weigh(s, p, o, valid, b, first);
            first = false;
            ++done;
            multiply_scores(s, done & 1, done >> 1 & 1);
            valid = valid_keys(done & 1);
            ptx::mma_wait<2>();
            ptx::mma_pin(o);
            arrive(shared.k_empty[b][0]);
            ptx::mma_wait<0>();
            ptx::mma_pin(s);
            arrive(shared.scores_done[done & 1]);
        }
        arrive(shared.q_empty);
        weigh(s, p, o, valid, done & 1, first);
        ptx::mma_wait<0>();
        ptx::mma_pin(o);
        arrive(shared.k_empty[done & 1][0]);
        ++done;
#pragma unroll
        for (int d = 1; d < 4; d *= 2) {
            max0 = fmaxf(max0, __shfl_xor_sync(ptx::kFullMask, max0, d));
            max1 = fmaxf(max1, __shfl_xor_sync(ptx::kFullMask, max1, d));
        }
#pragma unroll
        for (int d = 1; d < 4; d *= 2) {
            sum0 += __shfl_xor_sync(ptx::kFullMask, sum0, d);
            sum1 += __shfl_xor_sync(ptx::kFullMask, sum1, d);
        }
    }

    __device__ __forceinline__ void run() {
        const u32 count = unit_count(args);
#pragma unroll 1
        for (u32 u = blockIdx.x; u < count; u += gridDim.x) {
            const Unit unit = unit_at(args, u);
            if (unit.blocks == 0 && args.segments > 1) {
                continue;  // the combine looks only at segments that have keys
            }
            m0 = m1 = max0 = max1 = kLowest;
            sum0 = sum1 = 0.0f;
            const i32 head = unit.head + at.row;
            if (unit.blocks == 0) {
                write_zeros(args, unit, at, 0);
            } else {
                float o[128];
                declare(o);
                run_unit(unit, o);
                float f0, f1;
                if (args.segments == 1) {
                    f0 = final_factor(args, head, m0, sum0);
                    f1 = final_factor(args, head + 8, m1, sum1);
                } else {  // sink and value scale enter in the combine
                    f0 = sum0 > 0.0f ? 1.0f / sum0 : 0.0f;
                    f1 = sum1 > 0.0f ? 1.0f / sum1 : 0.0f;
                }
                const u32 b = units & 1;
                ptx::barrier_wait(ptx::shared_address(&shared.final_empty[b]), (units >> 1 & 1) ^ 1);
                if (at.lane % 4 == 0) {
                    shared.final[b][at.row] = f0;
                    shared.final[b][at.row + 8] = f1;
                }
                ptx::barrier_arrive(ptx::shared_address(&shared.final_full[b]));
                ++units;
                prefetch_unit(args, u + gridDim.x);
                write_output<Type>(args, unit, at, 0, o, f0, f1);
            }
            if (at.lane % 4 == 0) {
                save(unit, head, m0, max0, sum0);
                save(unit, head + 8, m1, max1, sum1);
            }
        }
    }

    __device__ __forceinline__ void save(const Unit& unit, i32 head, float m, float largest, float sum) const {
        if (head >= args.heads) {
            return;
        }
        if (args.segments == 1) {
            write_stats(args, unit.row, head, m, largest, sum);
            return;
        }
        float* dst = args.stats + ((static_cast<i64>(unit.row) * args.segments + unit.segment) * args.heads + head) * 4;
        *reinterpret_cast<float4*>(dst) = make_float4(m, sum, largest, 0.0f);
    }
};

// The value group multiplies a block only when the scores of the next one are there: its product then fills the time in which the score group
// is busy with the softmax.
template <class Rows>
struct ValueGroup {
    using Type = typename Rows::Type;
    static constexpr int Tiles = Rows::Tiles;

    const SparseAttendArgs& args;
    Storage<Tiles>& shared;
    Corner at;
    u32 done = 0, units = 0;

    __device__ __forceinline__ ValueGroup(const SparseAttendArgs& a, Storage<Tiles>& s) : args(a), shared(s) {}

    __device__ __forceinline__ void run_unit(const Unit& unit, float (&o)[128]) {
#pragma unroll 1
        for (i32 left = unit.blocks - 1; left >= 0; --left, ++done) {
            const u32 b = done & 1, parity = done >> 1 & 1;
            ptx::barrier_wait(ptx::shared_address(&shared.weights_full[b]), parity);
            ptx::barrier_wait(ptx::shared_address(&shared.k_full[b][1]), parity);
            const bool first = left == unit.blocks - 1;
            const float f0 = *const_cast<const volatile float*>(&shared.factor[b][at.row]);
            const float f1 = *const_cast<const volatile float*>(&shared.factor[b][at.row + 8]);
            if (!first && __any_sync(ptx::kFullMask, f0 != 1.0f || f1 != 1.0f)) {
                rescale(o, f0, f1);
            }
            if (left > 0) {
                ptx::barrier_wait(ptx::shared_address(&shared.scores_done[b ^ 1]), (done + 1) >> 1 & 1);
            }
            const u64 p = ptx::operand_128b(shared.weights_at(b));
            const u64 v = ptx::operand_128b_across(ptx::shared_address(shared.k[b]) + kHalfTiles * kTileBytes, kTileBytes);
            ptx::mma_pin(o);
            ptx::mma_fence();
#pragma unroll
            for (int step = 0; step < 4; ++step) {
                Type::multiply_256(o, p + step * 2, v + step * 16 * 128 / 16, step > 0 || !first);
            }
            ptx::mma_commit();
            ptx::mma_wait<0>();
            ptx::mma_pin(o);
            arrive(shared.k_empty[b][1]);
        }
    }

    __device__ __forceinline__ void run() {
        const u32 count = unit_count(args);
#pragma unroll 1
        for (u32 u = blockIdx.x; u < count; u += gridDim.x) {
            const Unit unit = unit_at(args, u);
            if (unit.blocks == 0 && args.segments > 1) {
                continue;
            }
            if (unit.blocks == 0) {
                write_zeros(args, unit, at, kHalfColumns);
                continue;
            }
            float o[128];
            declare(o);
            run_unit(unit, o);
            const u32 b = units & 1;
            ptx::barrier_wait(ptx::shared_address(&shared.final_full[b]), units >> 1 & 1);
            const float f0 = *const_cast<const volatile float*>(&shared.final[b][at.row]);
            const float f1 = *const_cast<const volatile float*>(&shared.final[b][at.row + 8]);
            arrive(shared.final_empty[b]);
            ++units;
            prefetch_unit(args, u + gridDim.x);
            write_output<Type>(args, unit, at, kHalfColumns, o, f0, f1);
        }
    }
};

}  // namespace sparrow_sparse
