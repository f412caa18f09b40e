// Expert matrix products, portable kernels (arguments: sm90/experts/args.h): gate and up with the activation, or down.
//
// Item:  256 weight rows of an expert by up to 64 of its tokens. The weight rows are two halves of 128: gate and up of
//        the same inner columns, or rows of down.
// Block: 256 threads process items in a loop. Tokens are loaded in blocks of 128 bytes of k into a ring buffer in
//        shared memory. Each warp loads 16 weight rows of each half from global memory directly to its registers, one
//        block before their use.
// Bits:  k is not split (mma.cuh), so the result for a token depends only on the token and the weights.
#pragma once

#include "sm80/experts/weights.cuh"
#include "sm90/experts/args.h"
#include "smxx/activation.cuh"
#include "smxx/num.cuh"

namespace portable {

constexpr int kExpertThreads = 256, kExpertWarps = kExpertThreads / 32, kExpertStages = 4;
constexpr i32 kGroupTokens = 64;
constexpr i32 kMaxExperts = 512;  // maximum number of experts, checked by the launchers

// MostTiles is the maximum number of tiles of 16 tokens that are multiplied at a time.
template <class W, bool Down, int MostTiles>
struct ExpertShape {
    using Weights = W;
    using Type = typename W::Type;
    static constexpr bool kDown = Down;
    static constexpr int Tiles = MostTiles;
    static constexpr u32 StageBytes = 16 * MostTiles * kBlockBytes;
};

template <class S>
struct ExpertStorage {
    u8 tokens[kExpertStages][S::StageBytes];
    ListedView list[kMaxExperts];
    float largest[kExpertWarps][16 * S::Tiles];
};

// The matrix from which token rows and their scales are read, and the weight tiles.
struct ExpertSource {
    const u8* rows;
    i64 pitch;  // bytes between token rows
    i32 row_bytes;
    const float* scales;  // [rows, blocks] scales of the tokens
    const u8* weights;
    const float2* weight_scales;
    i32 blocks, tiles;
};

template <class S>
__device__ __forceinline__ ExpertSource expert_source(const ExpertsArgs& args) {
    if constexpr (S::kDown) {
        return {args.inner, args.inner_pitch, args.inner_pitch, args.inner_scales, args.down, args.down_scales,
                args.inner_blocks, args.hidden_tiles};
    } else {
        constexpr bool scaled = S::Type::Scaled;
        return {scaled ? args.codes : reinterpret_cast<const u8*>(args.x),
                scaled ? args.hidden_pitch : 2 * args.x_stride,
                args.hidden * S::Type::Bytes, args.code_scales, args.gate_up, args.gate_up_scales,
                args.hidden_blocks, args.inner_tiles};
    }
}

// Returns the row from which the token at place `place` of the sorted order is read.
template <class S>
__device__ __forceinline__ i64 token_row(const ExpertsArgs& args, i32 place) {
    return S::kDown ? place : args.order[place] / args.top;
}

// Returns the weight row, of the 256 rows of a tile, for column tile j of a warp.
__device__ __forceinline__ u32 weight_row(u32 warp, int j) { return (j < 2 ? 0 : 128) + 16 * warp + j % 2 * 8; }

// Multiplies up to 16 * M tokens, starting at position `first`, by a tile of an expert's weights.
template <class S, int M>
__device__ __forceinline__ void run_tokens(const ExpertsArgs& args, ExpertStorage<S>& shared, const ExpertSource& from,
                                           i32 expert, i32 tile, i32 first, i32 count) {
    using T = typename S::Type;
    using W = typename S::Weights;
    constexpr int kSteps = 2 * T::Steps;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
    const u8* weights = from.weights + (static_cast<i64>(expert) * from.tiles + tile) * from.blocks * W::TileBytes;
    const float2* halves = from.weight_scales + (static_cast<i64>(expert) * from.tiles + tile) * from.blocks;
    // The 16-byte chunks that this thread copies belong to token threadIdx.x / 8 and, with more than 32 tokens, also to
    // token threadIdx.x / 8 + 32.
    constexpr int kCopies = (16 * M * 8 + kExpertThreads - 1) / kExpertThreads;
    const u8* own[kCopies];
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
        const i32 t = threadIdx.x / 8 + 32 * i;
        own[i] = t < count ? from.rows + token_row<S>(args, first + t) * from.pitch : nullptr;
    }
    const auto fetch = [&](i32 block) {
        if (block < from.blocks) {
            const u32 stage = shared_address(shared.tokens[block % kExpertStages]), c = threadIdx.x % 8;
            const i32 at = block * static_cast<i32>(kBlockBytes) + c * 16;
#pragma unroll
            for (int i = 0; i < kCopies; ++i) {
                const u32 t = threadIdx.x / 8 + 32 * i;
                if (t < 16 * M) {
                    const bool valid = own[i] != nullptr && at < from.row_bytes;
                    copy_16(stage + swizzled(t, c), valid ? own[i] + at : from.rows, valid);
                }
            }
        }
        copies_commit();
    };
    const float* scales[2 * M];
    if constexpr (T::Scaled) {
#pragma unroll
        for (int i = 0; i < 2 * M; ++i) {
            const i32 t = 8 * i + group;
            scales[i] = t < count ? from.scales + token_row<S>(args, first + t) * from.blocks : nullptr;
        }
    }
    __syncthreads();  // all threads have read the data of the previous item in shared memory
#pragma unroll
    for (int s = 0; s < kExpertStages - 1; ++s) {
        fetch(s);
    }
    float total[M][4][4] = {};
    W now[4], next[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        next[j].load(weights, weight_row(warp, j) + group, quad);
    }
    for (i32 block = 0; block < from.blocks; ++block) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            now[j] = next[j];
        }
        weights += W::TileBytes;
        if (block + 1 < from.blocks) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                next[j].load(weights, weight_row(warp, j) + group, quad);
            }
        }
        float up[2 * M];
        float2 tile_scales = make_float2(0.0f, 0.0f);
        if constexpr (T::Scaled) {
            tile_scales = halves[block];
#pragma unroll
            for (int i = 0; i < 2 * M; ++i) {
                up[i] = scales[i] != nullptr ? scales[i][block] : 0.0f;
            }
        }
        copies_wait<kExpertStages - 2>();
        __syncthreads();  // the block has arrived, and all threads have read the previous block
        fetch(block + kExpertStages - 1);
        const u32 stage = shared_address(shared.tokens[block % kExpertStages]);
        float part[M][4][4];
        if constexpr (T::Scaled) {
#pragma unroll
            for (int i = 0; i < M * 16; ++i) {
                part[i / 16][i / 4 % 4][i % 4] = 0.0f;
            }
        }
        uint4 a[M][2];
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
            if (step % T::Steps == 0) {
#pragma unroll
                for (int m = 0; m < M; ++m) {
                    a[m][0] = piece_at(stage, 16 * m + group, quad, step / T::Steps);
                    a[m][1] = piece_at(stage, 16 * m + 8 + group, quad, step / T::Steps);
                }
            }
            u32 right[4][2];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                now[j].words(step, right[j]);
            }
#pragma unroll
            for (int m = 0; m < M; ++m) {
                u32 left[4];
                T::words(a[m][0], step % T::Steps, left[0], left[2]);
                T::words(a[m][1], step % T::Steps, left[1], left[3]);
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    T::multiply(T::Scaled ? part[m][j] : total[m][j], left, right[j]);
                }
            }
        }
        if constexpr (T::Scaled) {
#pragma unroll
            for (int m = 0; m < M; ++m) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const float own_scale = j < 2 ? tile_scales.x : tile_scales.y;
                    const float upper = __fmul_rn(__fmul_rn(own_scale, up[2 * m]), kCodeUp),
                                lower = __fmul_rn(__fmul_rn(own_scale, up[2 * m + 1]), kCodeUp);
                    total[m][j][0] = fmaf(part[m][j][0], upper, total[m][j][0]);
                    total[m][j][1] = fmaf(part[m][j][1], upper, total[m][j][1]);
                    total[m][j][2] = fmaf(part[m][j][2], lower, total[m][j][2]);
                    total[m][j][3] = fmaf(part[m][j][3], lower, total[m][j][3]);
                }
            }
        }
    }
    if constexpr (S::kDown) {
#pragma unroll
        for (int i = 0; i < 2 * M; ++i) {
            const i32 t = 8 * i + group;
            if (t >= count) {
                continue;
            }
            u16* out = args.results + static_cast<i64>(args.order[first + t]) * args.hidden;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const i32 column = tile * 256 + weight_row(warp, j) + 2 * quad;
                if (column < args.hidden) {
                    *reinterpret_cast<u32*>(out + column) =
                        pack_bf16_fast(total[i / 2][j][i % 2 * 2], total[i / 2][j][i % 2 * 2 + 1]);
                }
            }
        }
    } else {
#pragma unroll
        for (int i = 0; i < M * 8; ++i) {
            float& gate = total[i / 8][i / 4 % 2][i % 4];
            gate = gated(gate, total[i / 8][2 + i / 4 % 2][i % 4], args.limit);
        }
        if constexpr (T::Scaled) {  // token scale per 128 columns
#pragma unroll
            for (int i = 0; i < 2 * M; ++i) {
                const float(&d)[4][4] = total[i / 2];
                const int at = i % 2 * 2;
                float most = fmaxf(fmaxf(fabsf(d[0][at]), fabsf(d[0][at + 1])),
                                   fmaxf(fabsf(d[1][at]), fabsf(d[1][at + 1])));
                most = fmaxf(most, __shfl_xor_sync(ptx::kFullMask, most, 1));
                most = fmaxf(most, __shfl_xor_sync(ptx::kFullMask, most, 2));
                if (quad == 0) {
                    shared.largest[warp][8 * i + group] = most;
                }
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < 2 * M; ++i) {
            const i32 t = 8 * i + group;
            if (t >= count) {
                continue;
            }
            const i64 place = first + t;
            const int at = i % 2 * 2;
            if constexpr (T::Scaled) {
                float most = 0.0f;
#pragma unroll
                for (int w = 0; w < kExpertWarps; ++w) {
                    most = fmaxf(most, shared.largest[w][t]);
                }
                const float scale = index_scale(fminf(most, 3.4028234663852886e38f), !args.pow2);
                const float inverse = __frcp_rn(scale);
                if (warp == 0 && quad == 0) {
                    args.inner_scales[place * args.inner_blocks + tile] = scale;
                }
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    u8* out = args.inner + place * args.inner_pitch + tile * 128 + weight_row(warp, j) + 2 * quad;
                    *reinterpret_cast<u16*>(out) = static_cast<u16>(pack_e4m3_fast(
                        __fmul_rn(total[i / 2][j][at], inverse), __fmul_rn(total[i / 2][j][at + 1], inverse)));
                }
            } else {
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    u8* out = args.inner + place * args.inner_pitch + (tile * 128 + weight_row(warp, j) + 2 * quad) * 2;
                    *reinterpret_cast<u32*>(out) = pack_bf16_fast(total[i / 2][j][at], total[i / 2][j][at + 1]);
                }
            }
        }
    }
}

template <class S>
__device__ __forceinline__ void multiply_experts(const ExpertsArgs& args) {
    extern __shared__ __align__(128) u8 dynamic_shared[];
    ExpertStorage<S>& shared = *reinterpret_cast<ExpertStorage<S>*>(dynamic_shared);
    const ExpertSource from = expert_source<S>(args);
    const i32 listed = args.totals[0];
    for (i32 i = threadIdx.x; i < listed; i += kExpertThreads) {
        shared.list[i] = args.list[i];
    }
    __syncthreads();
    i32 at = 0;
    for (i32 item = blockIdx.x;; item += gridDim.x) {
        // The items of an expert are ordered by tile, then by group, so that blocks that share weights run at the
        // same time.
        i32 groups = 0, local = 0;
        for (; at < listed; ++at) {
            groups = (shared.list[at].count + kGroupTokens - 1) / kGroupTokens;
            local = item - shared.list[at].before * from.tiles;
            if (local < groups * from.tiles) {
                break;
            }
        }
        if (at >= listed) {
            return;
        }
        const ListedView e = shared.list[at];
        const i32 tile = local / groups, skip = (local - tile * groups) * kGroupTokens;
        const i32 count = min(kGroupTokens, e.count - skip);
        for (i32 t = 0; t < count; t += 16 * S::Tiles) {
            const i32 left = count - t;
            if (S::Tiles == 1 || left <= 16) {
                run_tokens<S, 1>(args, shared, from, e.expert, tile, e.first + skip + t, min(left, 16));
            } else if constexpr (S::Tiles > 1) {
                if (S::Tiles == 2 || left <= 32) {
                    run_tokens<S, 2>(args, shared, from, e.expert, tile, e.first + skip + t, min(left, 32));
                } else if constexpr (S::Tiles > 2) {
                    run_tokens<S, 4>(args, shared, from, e.expert, tile, e.first + skip + t, left);
                }
            }
        }
    }
}

}  // namespace portable

#define PORTABLE_EXPERTS(name, ...)                                                                         \
    extern "C" __global__ void __launch_bounds__(portable::kExpertThreads)                                  \
        name(const __grid_constant__ ExpertsArgs args) {                                                    \
        portable::multiply_experts<portable::ExpertShape<__VA_ARGS__>>(args);                               \
    }                                                                                                       \
    extern "C" __device__ const u32 name##_shared = sizeof(portable::ExpertStorage<portable::ExpertShape<__VA_ARGS__>>);
