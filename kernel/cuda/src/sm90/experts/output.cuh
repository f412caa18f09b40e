// Output of the math warpgroups for up to 64 tokens, which are columns of the tile. A lane holds two of every eight
// tokens, and two weight rows of each operand. Output columns are distributed over lanes, so they are transposed in
// shared memory, some tokens at a time, and stored as 16-byte pieces of a token's row.
#pragma once

#include "sm90/experts/config.h"
#include "smxx/activation.cuh"
#include "smxx/num.cuh"

namespace sparrow_experts {

// Stages tokens [from, from + Pass) of 64 columns as bf16. The 16 columns of a warp are two matrices per eight
// tokens.
template <int Pass, int N>
__device__ __forceinline__ void stage_bf16(const float (&d)[N / 2], u32 staged, int from, u32 warp, u32 lane) {
#pragma unroll
    for (int j = 0; j < (N < Pass ? N : Pass) / 8; ++j) {
        const int i = 4 * (from / 8 + j);
        const u32 token = 8 * j + lane % 8, column = 16 * warp + 8 * (lane / 8 % 2);
        ptx::store_columns(staged + token * kPitch + column * 2, ptx::pack_bf16(d[i], d[i + 1]),
                           ptx::pack_bf16(d[i + 2], d[i + 3]));
    }
}

// Stages tokens [from, from + Pass) of 64 columns as e4m3, times the inverse of their scales. They are stored as single
// bytes without bank conflicts.
template <int Pass, int N>
__device__ __forceinline__ void stage_e4m3(const float (&d)[N / 2], u32 staged, const float* inverse, int from,
                                           u32 warp, u32 lane) {
#pragma unroll
    for (int j = 0; j < (N < Pass ? N : Pass) / 8; ++j) {
        const int i = 4 * (from / 8 + j);
        const u32 token = 8 * j + 2 * (lane % 4);
        const float2 s = *reinterpret_cast<const float2*>(inverse + from + token);
        const u32 at = staged + token * kPitch + 16 * warp + lane / 4;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const u32 codes = pack_e4m3_fast(__fmul_rn(d[i + 2 * half], s.x), __fmul_rn(d[i + 2 * half + 1], s.y));
            asm volatile("st.shared.u8 [%0], %1;" ::"r"(at + 8 * half), "r"(codes) : "memory");
            asm volatile("st.shared.u8 [%0], %1;" ::"r"(at + 8 * half + kPitch), "r"(codes >> 8) : "memory");
        }
    }
}

// Gate and up: writes the activations of a warpgroup's 64 inner columns. For e4m3 they are quantised together with the
// 64 columns of the other warpgroup.
template <class S, int N>
__device__ __forceinline__ void write_gated(const ExpertsArgs& args, Storage<S>& shared, const Item& item,
                                            float (&gate)[N / 2], const float (&up)[N / 2], u32 group, u32 t) {
    const u32 warp = t / 32, lane = t % 32;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
        gate[i] = gated(gate[i], up[i], args.limit);
    }
    if constexpr (S::Type::Scaled) {
        both_barrier();  // both warpgroups have read the maxima of the previous item
#pragma unroll
        for (int j = 0; j < N / 8; ++j) {
            float a = fmaxf(fabsf(gate[4 * j]), fabsf(gate[4 * j + 2])),
                  b = fmaxf(fabsf(gate[4 * j + 1]), fabsf(gate[4 * j + 3]));
#pragma unroll
            for (int d = 4; d < 32; d *= 2) {
                a = fmaxf(a, __shfl_xor_sync(ptx::kFullMask, a, d));
                b = fmaxf(b, __shfl_xor_sync(ptx::kFullMask, b, d));
            }
            if (lane < 4) {
                *reinterpret_cast<float2*>(&shared.largest[4 * group + warp][8 * j + 2 * lane]) = make_float2(a, b);
            }
        }
        both_barrier();
        if (t < N) {
            float most = 0;
#pragma unroll
            for (int w = 0; w < 4 * kGroups; ++w) {
                most = fmaxf(most, shared.largest[w][t]);
            }
            const float scale = index_scale(fminf(most, 3.4028234663852886e38f), !args.pow2);
            shared.inverse[group][t] = __frcp_rn(scale);
            if (group == 0 && static_cast<i32>(t) < item.count) {
                args.inner_scales[static_cast<i64>(item.first + t) * args.inner_blocks + item.tile] = scale;
            }
        }
        group_barrier(group);
    }
    constexpr int kPass = S::PassTokens, kRowBytes = kOperandRows * S::Type::Bytes, kPieces = kRowBytes / 16;
    const u32 staged = ptx::shared_address(shared.staged[group]);
    u8* to = args.inner + (item.tile * kGroups + static_cast<i32>(group)) * kRowBytes;
#pragma unroll
    for (int from = 0; from < N; from += kPass) {
        if constexpr (S::Type::Scaled) {
            stage_e4m3<kPass, N>(gate, staged, shared.inverse[group], from, warp, lane);
        } else {
            stage_bf16<kPass, N>(gate, staged, from, warp, lane);
        }
        group_barrier(group);
        for (u32 i = t; i < (N < kPass ? N : kPass) * kPieces; i += 128) {
            const i32 token = i / kPieces, piece = i % kPieces;
            if (from + token < item.count) {
                *reinterpret_cast<uint4*>(to + static_cast<i64>(item.first + from + token) * args.inner_pitch +
                                          piece * 16) = ptx::load_vector(staged + token * kPitch + piece * 16);
            }
        }
        group_barrier(group);
    }
}

// Down: writes 64 output columns of a warpgroup for every pair, in bf16, to the row of the pair in results.
template <class S, int N>
__device__ __forceinline__ void write_results(const ExpertsArgs& args, Storage<S>& shared, const Item& item,
                                              const float (&sum)[N / 2], i32 column, u32 group, u32 t) {
    constexpr int kPass = S::PassTokens, kPieces = 8;
    const u32 staged = ptx::shared_address(shared.staged[group]);
    const i32* pairs = shared.pairs[group];
#pragma unroll
    for (int from = 0; from < N; from += kPass) {
        stage_bf16<kPass, N>(sum, staged, from, t / 32, t % 32);
        group_barrier(group);
        for (u32 i = t; i < (N < kPass ? N : kPass) * kPieces; i += 128) {
            const i32 token = i / kPieces, at = column + i % kPieces * 8;
            if (from + token < item.count && at < args.hidden) {
                *reinterpret_cast<uint4*>(args.results + static_cast<i64>(pairs[from + token]) * args.hidden + at) =
                    ptx::load_vector(staged + token * kPitch + i % kPieces * 16);
            }
        }
        group_barrier(group);
    }
}

}  // namespace sparrow_experts
