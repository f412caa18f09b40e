// Output of the math warpgroups for more than 64 tokens, which are rows of the tile. A lane holds two tokens, l / 4
// and l / 4 + 8 of its warp's 16, and two of every eight columns. A warp stages its own 16 tokens and writes them in
// 16-byte pieces.
#pragma once

#include "ptx/wgmma_half.cuh"
#include "sm90/experts/config.h"
#include "smxx/activation.cuh"
#include "smxx/num.cuh"

namespace sparrow_experts {

// Bytes of a staged token: 128, and padding so that accesses to eight tokens have no bank conflicts.
constexpr int kRowPitch = 144;

// Returns the address of a warp's staging memory, which holds 16 tokens.
template <class S>
__device__ __forceinline__ u32 warp_staged(Storage<S>& shared, u32 group, u32 t) {
    static_assert(sizeof(shared.staged[0]) >= 64 * kRowPitch, "room for 64 tokens");
    return ptx::shared_address(shared.staged[group]) + t / 32 * 16 * kRowPitch;
}

// Stages 64 columns of 16 tokens as bf16, starting at column 64 * part.
__device__ __forceinline__ void stage_rows(const float (&d)[64], int part, u32 staged, u32 lane) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const int i = 32 * part + 8 * j;
        const u32 a[4] = {ptx::pack_bf16(d[i], d[i + 1]), ptx::pack_bf16(d[i + 2], d[i + 3]),
                          ptx::pack_bf16(d[i + 4], d[i + 5]), ptx::pack_bf16(d[i + 6], d[i + 7])};
        ptx::store_fragments(staged + lane % 16 * kRowPitch + (2 * j + lane / 16) * 16, a);
    }
}

// Gate and up: writes the activations of 128 inner columns of a warp's 16 tokens, quantised for e4m3. `token` is the
// first of the 16.
template <class S>
__device__ __forceinline__ void write_inner_rows(const ExpertsArgs& args, const Item& item, const float (&gate)[64],
                                                 i32 token, u32 staged, u32 lane) {
    if constexpr (S::Type::Scaled) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float most = 0;
#pragma unroll
            for (int j = 0; j < 16; ++j) {
                most = fmaxf(most, fmaxf(fabsf(gate[4 * j + 2 * half]), fabsf(gate[4 * j + 2 * half + 1])));
            }
            most = fmaxf(most, __shfl_xor_sync(ptx::kFullMask, most, 1));
            most = fmaxf(most, __shfl_xor_sync(ptx::kFullMask, most, 2));
            const float scale = index_scale(fminf(most, 3.4028234663852886e38f), !args.pow2),
                        inverse = __frcp_rn(scale);
            const i32 own = token + static_cast<i32>(lane / 4) + 8 * half;
            if (lane % 4 == 0 && own < item.count) {
                args.inner_scales[static_cast<i64>(item.first + own) * args.inner_blocks + item.tile] = scale;
            }
            const u32 at = staged + (lane / 4 + 8 * half) * kRowPitch + 2 * (lane % 4);
#pragma unroll
            for (int j = 0; j < 16; ++j) {
                const u32 codes = pack_e4m3_fast(__fmul_rn(gate[4 * j + 2 * half], inverse),
                                                 __fmul_rn(gate[4 * j + 2 * half + 1], inverse));
                asm volatile("st.shared.u16 [%0], %1;" ::"r"(at + 8 * j), "h"(static_cast<u16>(codes)) : "memory");
            }
        }
    }
    constexpr int kParts = S::Type::Bytes;  // passes of 128 bytes
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
        if constexpr (!S::Type::Scaled) {
            stage_rows(gate, part, staged, lane);
        }
        __syncwarp();
        u8* to = args.inner + (item.tile * kParts + part) * 128;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const i32 row = 4 * i + static_cast<i32>(lane / 8), own = token + row;
            if (own < item.count) {
                *reinterpret_cast<uint4*>(to + static_cast<i64>(item.first + own) * args.inner_pitch + lane % 8 * 16) =
                    ptx::load_vector(staged + row * kRowPitch + lane % 8 * 16);
            }
        }
        __syncwarp();
    }
}

// Gate and up: writes the activations of 128 inner columns for a warpgroup's 64 tokens.
template <class S>
__device__ __forceinline__ void write_gated_rows(const ExpertsArgs& args, Storage<S>& shared, const Item& item,
                                                 float (&gate)[64], const float (&up)[64], u32 group, u32 t) {
#pragma unroll
    for (int i = 0; i < 64; ++i) {
        gate[i] = gated(gate[i], up[i], args.limit);
    }
    const i32 token = 64 * static_cast<i32>(group) + static_cast<i32>(t / 32) * 16;
    write_inner_rows<S>(args, item, gate, token, warp_staged(shared, group, t), t % 32);
}

// Down: writes two sets of 64 columns of the results of a warp's 16 pairs, in bf16, to the rows of the pairs. `token`
// is the first of the 16; the second set starts `apart` columns after the first.
__device__ __forceinline__ void write_result_rows(const ExpertsArgs& args, const Item& item, const float (&sum)[64],
                                                  const i32* pairs, i32 column, i32 apart, i32 token, u32 staged,
                                                  u32 lane) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
        stage_rows(sum, part, staged, lane);
        __syncwarp();
        const i32 at = column + apart * part + static_cast<i32>(lane % 8) * 8;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const i32 row = 4 * i + static_cast<i32>(lane / 8), own = token + row;
            if (own < item.count && at < args.hidden) {
                *reinterpret_cast<uint4*>(args.results + static_cast<i64>(pairs[row]) * args.hidden + at) =
                    ptx::load_vector(staged + row * kRowPitch + lane % 8 * 16);
            }
        }
        __syncwarp();
    }
}

}  // namespace sparrow_experts
