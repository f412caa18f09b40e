// The two math warpgroups.
//
// The score group multiplies queries by a block of keys, turns scores into weights, hands them to the value group through shared memory and
// multiplies them, from its own registers, by columns 0-255 of the block; the value group does columns 256-511. Scores of the next block are
// asked for behind the product of the last one, so the tensor cores stop only for the part of the softmax that the value group's product
// does not cover.
//
// Bits: a unit's result depends on its row, its keys and their order alone; so does the sum over segments (combine.cuh), because where a
// segment ends depends on nothing but the position.
#pragma once

#include "ptx/wgmma.cuh"
#include "ptx/wgmma_bf16.cuh"
#include "sm90/sparse/storage.cuh"

namespace sparrow_sparse {

// Exponents are relative to a number that follows the largest score only when that has outgrown it by this much, in base 2: the output is
// rescaled in few blocks, and weights reach 2^8 at most. What a row does depends on the row alone.
constexpr float kSlack = 8.0f;

constexpr float kLn2 = 0.693147180559945309f, kLog2e = 1.44269504088896341f;

__device__ __forceinline__ float exp2_fast(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

__device__ __forceinline__ u32 pack(float low, float high) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

// Transposes 4 x 4 words over four neighbouring lanes: lane q gives word k to lane k and gets the q-th word of every lane.
__device__ __forceinline__ void transpose_quad(u32 (&w)[4], u32 q) {
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
        const u32 got = __shfl_xor_sync(ptx::kFullMask, q & 1 ? w[k] : w[k + 1], 1);
        w[k] = q & 1 ? got : w[k];
        w[k + 1] = q & 1 ? w[k + 1] : got;
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) {
        const u32 got = __shfl_xor_sync(ptx::kFullMask, q & 2 ? w[k] : w[k + 2], 2);
        w[k] = q & 2 ? got : w[k];
        w[k + 2] = q & 2 ? w[k + 2] : got;
    }
}

// Where a lane's part of a [64, 256] accumulator goes: heads row and row + 8, and of every 8 columns 2*(lane%4) and the next.
struct Corner {
    i32 warp, lane, row;

    __device__ __forceinline__ Corner() {
        warp = threadIdx.x / 32 % 4;
        lane = threadIdx.x % 32;
        row = warp * 16 + lane / 4;
    }
};

// Multiplies the accumulator's two rows; a warp whose factors are all one skips it, which changes no bit.
__device__ __forceinline__ void rescale(float (&o)[128], float f0, float f1) {
    if (__any_sync(ptx::kFullMask, f0 != 1.0f || f1 != 1.0f)) {
#pragma unroll
        for (int i = 0; i < 128; i += 4) {
            o[i] *= f0;
            o[i + 1] *= f0;
            o[i + 2] *= f1;
            o[i + 3] *= f1;
        }
    }
}

// Writes columns [column, column + 256) of the unit: the row's result as bf16, or an fp32 part of it for the combine.
__device__ __forceinline__ void write_output(const SparseAttendArgs& args, const Unit& unit, const Corner& at, i32 column, float (&o)[128], float f0,
                                             float f1) {
    const u32 q = at.lane % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const i32 head = unit.head + at.row + half * 8;
        const float f = half ? f1 : f0;
        if (args.segments > 1) {
            if (head < args.heads) {
                float* dst = args.partial + ((static_cast<i64>(unit.row) * args.segments + unit.segment) * args.heads + head) * kValues + column + q * 2;
#pragma unroll
                for (int j = 0; j < 32; ++j) {
                    *reinterpret_cast<float2*>(dst + j * 8) = make_float2(o[j * 4 + half * 2], o[j * 4 + half * 2 + 1]);
                }
            }
            continue;
        }
        u16* dst = args.out + unit.row * args.out_stride + static_cast<i64>(head) * kValues + column + q * 8;
#pragma unroll
        for (int j = 0; j < 32; j += 4) {
            u32 w[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                w[k] = pack(o[(j + k) * 4 + half * 2] * f, o[(j + k) * 4 + half * 2 + 1] * f);
            }
            transpose_quad(w, q);
            if (head < args.heads) {
                *reinterpret_cast<uint4*>(dst + j * 8) = make_uint4(w[0], w[1], w[2], w[3]);
            }
        }
    }
}

__device__ __forceinline__ void clear(float (&o)[128]) {
#pragma unroll
    for (int i = 0; i < 128; ++i) {
        o[i] = 0.0f;
    }
}

// What a head's sum, relative to its largest exponent m, is divided by, inverted; the sink enters here. A row without keys gives zeros.
__device__ __forceinline__ float final_factor(const SparseAttendArgs& args, i32 head, float m, float sum) {
    float divisor = sum;
    if (args.sinks != nullptr && head < args.heads) {
        divisor += exp2_fast(args.sinks[head] * kLog2e - m);
    }
    return sum > 0.0f ? args.value_scale / divisor : 0.0f;
}

// Logarithm of the sum, which is relative to m, and largest score of a row and head.
__device__ __forceinline__ void write_stats(const SparseAttendArgs& args, i32 row, i32 head, float m, float largest, float sum) {
    const float infinity = __int_as_float(0x7F800000);
    if (args.lse != nullptr) {
        args.lse[row * args.lse_stride + head] = sum > 0.0f ? logf(sum) + m * kLn2 : infinity;
    }
    if (args.max != nullptr) {
        args.max[row * args.max_stride + head] = sum > 0.0f ? largest * kLn2 : -infinity;
    }
}

template <int Tiles>
struct ScoreGroup {
    const SparseAttendArgs& args;
    Storage<Tiles>& shared;
    Corner at;
    u32 done = 0, units = 0;  // blocks, and units with keys
    // Of heads row and row + 8: what exponents are relative to, the largest score, both in base 2, and this lane's part of the sum.
    float m0, m1, max0, max1, sum0, sum1;

    __device__ __forceinline__ ScoreGroup(const SparseAttendArgs& a, Storage<Tiles>& s) : args(a), shared(s) {}

    // Asks for the scores of the block in buffer b, in two batches.
    __device__ __forceinline__ void multiply_scores(float (&s)[32], u32 b, u32 parity) {
        const u64 q = ptx::operand_128b(ptx::shared_address(shared.q)), k = ptx::operand_128b(ptx::shared_address(shared.k[b]));
        ptx::barrier_wait(ptx::shared_address(&shared.k_full[b][0]), parity);
        ptx::fence_async_proxy();
        ptx::mma_pin(s);
        ptx::mma_fence();
#pragma unroll
        for (int i = 0; i < kHalfTiles * 4; ++i) {
            ptx::mma_bf16_64(s, q + (i / 4 * kTileBytes + i % 4 * 32) / 16, k + (i / 4 * kTileBytes + i % 4 * 32) / 16, i != 0);
        }
        ptx::mma_commit();
        ptx::barrier_wait(ptx::shared_address(&shared.k_full[b][1]), parity);
        ptx::fence_async_proxy();
        ptx::mma_fence();
#pragma unroll
        for (int i = kHalfTiles * 4; i < Tiles * 4; ++i) {
            ptx::mma_bf16_64(s, q + (i / 4 * kTileBytes + i % 4 * 32) / 16, k + (i / 4 * kTileBytes + i % 4 * 32) / 16, 1);
        }
        ptx::mma_commit();
    }

    // Scores to weights in place; returns through f0, f1 what the output so far is multiplied by.
    __device__ __forceinline__ void softmax(float (&s)[32], u64 valid, float& f0, float& f1) {
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
#pragma unroll
        for (int d = 1; d < 4; d *= 2) {
            high0 = fmaxf(high0, __shfl_xor_sync(ptx::kFullMask, high0, d));
            high1 = fmaxf(high1, __shfl_xor_sync(ptx::kFullMask, high1, d));
        }
        const float scale = args.score_scale;
        high0 *= scale;
        high1 *= scale;
        max0 = fmaxf(max0, high0);
        max1 = fmaxf(max1, high1);
        const float n0 = high0 > m0 + kSlack ? high0 : m0, n1 = high1 > m1 + kSlack ? high1 : m1;
        f0 = exp2_fast(m0 - n0);
        f1 = exp2_fast(m1 - n1);
        m0 = n0;
        m1 = n1;
        float t0 = 0.0f, t1 = 0.0f;
#pragma unroll
        for (int i = 0; i < 32; i += 4) {
            s[i] = exp2_fast(fmaf(s[i], scale, -n0));
            s[i + 1] = exp2_fast(fmaf(s[i + 1], scale, -n0));
            s[i + 2] = exp2_fast(fmaf(s[i + 2], scale, -n1));
            s[i + 3] = exp2_fast(fmaf(s[i + 3], scale, -n1));
            t0 += s[i] + s[i + 1];
            t1 += s[i + 2] + s[i + 3];
        }
        sum0 = fmaf(sum0, f0, t0);
        sum1 = fmaf(sum1, f1, t1);
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

    // Scores of the block in buffer b to weights, for both groups, and the output so far brought to their scale.
    __device__ __forceinline__ void weigh(float (&s)[32], u32 (&p)[4][4], float (&o)[128], u32 b) {
        float f0, f1;
        softmax(s, *const_cast<const volatile u64*>(&shared.valid[b]), f0, f1);
#pragma unroll
        for (int j = 0; j < 16; ++j) {
            p[j / 4][j % 4] = pack(s[j * 2], s[j * 2 + 1]);
        }
        publish(p, f0, f1, b);
        rescale(o, f0, f1);
    }

    // Asks for the product of the weights and the left columns of the block in buffer b.
    __device__ __forceinline__ void multiply_values(const u32 (&p)[4][4], float (&o)[128], u32 b) {
        const u64 v = ptx::operand_128b_across(ptx::shared_address(shared.k[b]), kTileBytes);
        ptx::mma_pin(o);
        ptx::mma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            ptx::mma_bf16_256(o, p[step], v + step * 16 * 128 / 16, 1);
        }
        ptx::mma_commit();
    }

    // One arrival per warp.
    __device__ __forceinline__ void arrive(u64& barrier) {
        if (at.lane == 0) {
            ptx::barrier_arrive(ptx::shared_address(&barrier));
        }
    }

    __device__ __forceinline__ void run_unit(const Unit& unit, float (&o)[128]) {
        float s[32];
        u32 p[4][4];
        ptx::barrier_wait(ptx::shared_address(&shared.q_full), units & 1);
        multiply_scores(s, done & 1, done >> 1 & 1);
        ptx::mma_wait<0>();
        ptx::mma_pin(s);
        arrive(shared.scores_done[done & 1]);
#pragma unroll 1
        for (i32 left = unit.blocks - 1; left > 0; --left) {
            const u32 b = done & 1;
            weigh(s, p, o, b);
            multiply_values(p, o, b);
            ++done;
            multiply_scores(s, done & 1, done >> 1 & 1);
            ptx::mma_wait<2>();
            ptx::mma_pin(o);
            arrive(shared.k_empty[b][0]);
            ptx::mma_wait<0>();
            ptx::mma_pin(s);
            arrive(shared.scores_done[done & 1]);
        }
        arrive(shared.q_empty);
        weigh(s, p, o, done & 1);
        multiply_values(p, o, done & 1);
        ptx::mma_wait<0>();
        ptx::mma_pin(o);
        arrive(shared.k_empty[done & 1][0]);
        ++done;
#pragma unroll
        for (int d = 1; d < 4; d *= 2) {
            sum0 += __shfl_xor_sync(ptx::kFullMask, sum0, d);
            sum1 += __shfl_xor_sync(ptx::kFullMask, sum1, d);
        }
    }

    __device__ __forceinline__ void run() {
        const i64 count = unit_count(args);
#pragma unroll 1
        for (i64 u = blockIdx.x; u < count; u += gridDim.x) {
            const Unit unit = unit_at(args, u);
            if (unit.blocks == 0 && args.segments > 1) {
                continue;  // the combine looks only at segments that have keys
            }
            float o[128];
            clear(o);
            float f0 = 0.0f, f1 = 0.0f;
            m0 = m1 = max0 = max1 = kLowest;
            sum0 = sum1 = 0.0f;
            const i32 head = unit.head + at.row;
            if (unit.blocks > 0) {
                run_unit(unit, o);
                if (args.segments == 1) {
                    f0 = final_factor(args, head, m0, sum0);
                    f1 = final_factor(args, head + 8, m1, sum1);
                    ptx::barrier_wait(ptx::shared_address(&shared.final_empty[units & 1]), (units >> 1 & 1) ^ 1);
                    if (at.lane % 4 == 0) {
                        shared.final[units & 1][at.row] = f0;
                        shared.final[units & 1][at.row + 8] = f1;
                    }
                    ptx::barrier_arrive(ptx::shared_address(&shared.final_full[units & 1]));
                }
                ++units;
            }
            if (at.lane % 4 == 0) {
                save(unit, head, m0, max0, sum0);
                save(unit, head + 8, m1, max1, sum1);
            }
            write_output(args, unit, at, 0, o, f0, f1);
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

// With Lag, the value group multiplies a block only when the scores of the next one are there: its product then fills the time in which the
// score group is busy with the softmax. The right half of the buffer stays in use for longer, which suits fetchers that hold the next rows
// in registers already and not those that copy.
template <int Tiles, bool Lag>
struct ValueGroup {
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
            const float f0 = *const_cast<const volatile float*>(&shared.factor[b][at.row]);
            const float f1 = *const_cast<const volatile float*>(&shared.factor[b][at.row + 8]);
            rescale(o, f0, f1);
            if (Lag && left > 0) {
                ptx::barrier_wait(ptx::shared_address(&shared.scores_done[b ^ 1]), (done + 1) >> 1 & 1);
            }
            ptx::fence_async_proxy();
            const u64 p = ptx::operand_128b(shared.weights_at(b));
            const u64 v = ptx::operand_128b_across(ptx::shared_address(shared.k[b]) + kHalfTiles * kTileBytes, kTileBytes);
            ptx::mma_pin(o);
            ptx::mma_fence();
#pragma unroll
            for (int step = 0; step < 4; ++step) {
                ptx::mma_bf16_256(o, p + step * 2, v + step * 16 * 128 / 16, 1);
            }
            ptx::mma_commit();
            ptx::mma_wait<0>();
            ptx::mma_pin(o);
            if (at.lane == 0) {
                ptx::barrier_arrive(ptx::shared_address(&shared.k_empty[b][1]));
            }
        }
    }

    __device__ __forceinline__ void run() {
        const i64 count = unit_count(args);
#pragma unroll 1
        for (i64 u = blockIdx.x; u < count; u += gridDim.x) {
            const Unit unit = unit_at(args, u);
            if (unit.blocks == 0 && args.segments > 1) {
                continue;
            }
            float o[128];
            clear(o);
            float f0 = 0.0f, f1 = 0.0f;
            if (unit.blocks > 0) {
                run_unit(unit, o);
                if (args.segments == 1) {
                    const u32 b = units & 1;
                    ptx::barrier_wait(ptx::shared_address(&shared.final_full[b]), units >> 1 & 1);
                    f0 = *const_cast<const volatile float*>(&shared.final[b][at.row]);
                    f1 = *const_cast<const volatile float*>(&shared.final[b][at.row + 8]);
                    __syncwarp();
                    if (at.lane == 0) {
                        ptx::barrier_arrive(ptx::shared_address(&shared.final_empty[b]));
                    }
                }
                ++units;
            }
            write_output(args, unit, at, kHalfColumns, o, f0, f1);
        }
    }
};

}  // namespace sparrow_sparse
