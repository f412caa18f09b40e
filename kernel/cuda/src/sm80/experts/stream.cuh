// Expert matrix products with few rows, portable kernels. Items and operands are those of experts.cuh, and results are
// bitwise equal. Their time is bound by weight bandwidth.
//
// Block:  512 threads process items in a loop. A warp has 8 rows of each half of a tile (gate and up of the same
//         columns, or rows of down), which are the left operand of the matrix unit. Tokens are the right operand,
//         eight at a time. Weights are loaded from global memory to registers, Ahead blocks of k before they are
//         multiplied.
// Tokens: A chunk of kChunk blocks of k of all tokens is widened once for all warps. It is stored in shared memory in
//         the order of the matrix unit while the next chunk is loaded.
// Bits:   As in experts.cuh: k is not split, and blocks and steps of k are summed in order.
#pragma once

#include "sm80/experts/experts.cuh"

namespace portable {

constexpr int kStreamThreads = 512, kStreamWarps = kStreamThreads / 32, kChunk = 4;

template <class W, bool Down, int TokenTiles, int BlocksAhead>
struct ExpertStream {
    using Weights = W;
    using Type = typename W::Type;
    static constexpr bool kDown = Down;
    static constexpr int Tiles = TokenTiles, Tokens = 8 * TokenTiles, Ahead = BlocksAhead;
    static constexpr int Pieces = Type::Steps;  // widened 16-byte pieces of a token and a block that a lane multiplies
    static constexpr u32 TokenBytes = Pieces * 64;  // bytes of a token and a block of k, widened
};

template <class S>
struct StreamStorage {
    u8 tokens[2][kChunk][S::Tokens][S::TokenBytes];
    float scales[2][kChunk][S::Tokens];
    ListedView list[kMaxExperts];
    float largest[kStreamWarps][S::Tokens];
};

// Multiplies up to 8 * Tiles tokens, starting at position `first`, by a tile of an expert's weights.
template <class S>
__device__ __forceinline__ void stream_tokens(const ExpertsArgs& args, StreamStorage<S>& shared,
                                              const ExpertSource& from, i32 expert, i32 tile, i32 first, i32 count) {
    using T = typename S::Type;
    using W = typename S::Weights;
    constexpr int kSteps = 2 * T::Steps;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
    const u8* weights = from.weights + (static_cast<i64>(expert) * from.tiles + tile) * from.blocks * W::TileBytes;
    const float2* halves = from.weight_scales + (static_cast<i64>(expert) * from.tiles + tile) * from.blocks;

    // The 16-byte pieces of a chunk of tokens that this thread stores. A token has kChunk * 8 pieces.
    constexpr int kStored = S::Tokens * kChunk * 8, kOwn = (kStored + kStreamThreads - 1) / kStreamThreads;
    uint4 coming[kOwn];
    float coming_scale = 0.0f;
    const auto ask = [&](i32 chunk) {
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            const i32 p = i * kStreamThreads + threadIdx.x, t = p / (kChunk * 8);
            const i64 at = static_cast<i64>(chunk) * kChunk * kBlockBytes + p % (kChunk * 8) * 16;
            coming[i] = make_uint4(0, 0, 0, 0);
            if (p < kStored && t < count && at < from.row_bytes) {
                const u8* row = from.rows + token_row<S>(args, first + t) * from.pitch;
                coming[i] = __ldg(reinterpret_cast<const uint4*>(row + at));
            }
        }
        if constexpr (T::Scaled) {
            const i32 t = threadIdx.x / kChunk, block = chunk * kChunk + threadIdx.x % kChunk;
            coming_scale = t < count && block < from.blocks
                               ? __ldg(from.scales + token_row<S>(args, first + t) * from.blocks + block)
                               : 0.0f;
        }
    };
    // The lanes of quad c / 2 multiply piece c of a block, as half c % 2. Pieces that the four quads read together
    // are adjacent, and are rotated by the token number so that reads have no bank conflicts.
    const u32 tokens_at = shared_address(shared.tokens);
    const auto place = [&](i32 chunk, int block, u32 token, u32 of_quad, u32 piece) {
        const u32 at = (piece * 4 + of_quad) ^ (token & 1) * 4;
        return tokens_at + (((chunk & 1) * kChunk + block) * S::Tokens + token) * S::TokenBytes + at * 16;
    };
    const auto store = [&](i32 chunk) {
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            const i32 p = i * kStreamThreads + threadIdx.x;
            if (p >= kStored) {
                break;
            }
            const u32 token = p / (kChunk * 8), block = p / 8 % kChunk, c = p % 8;
            if constexpr (T::Scaled) {  // sixteen codes become two 16-byte pieces
                u32 w[8];
#pragma unroll
                for (int step = 0; step < 4; ++step) {
                    T::words(coming[i], step, w[2 * step], w[2 * step + 1]);
                }
                store_shared(place(chunk, block, token, c / 2, c % 2 * 2), make_uint4(w[0], w[1], w[2], w[3]));
                store_shared(place(chunk, block, token, c / 2, c % 2 * 2 + 1), make_uint4(w[4], w[5], w[6], w[7]));
            } else {
                store_shared(place(chunk, block, token, c / 2, c % 2), coming[i]);
            }
        }
        if constexpr (T::Scaled) {
            if (threadIdx.x < kChunk * S::Tokens) {
                shared.scales[chunk & 1][threadIdx.x % kChunk][threadIdx.x / kChunk] = coming_scale;
            }
        }
    };

    W held[S::Ahead][2];
    float2 held_scales[S::Ahead];
    const auto ask_weights = [&](int slot, i32 block) {
        if (block < from.blocks) {
            const u8* at = weights + static_cast<i64>(block) * W::TileBytes;
            held[slot][0].load(at, 8 * warp + group, quad);
            held[slot][1].load(at, 128 + 8 * warp + group, quad);
            if constexpr (T::Scaled) {
                held_scales[slot] = __ldg(halves + block);
            }
        }
    };
#pragma unroll
    for (int d = 0; d < S::Ahead; ++d) {
        ask_weights(d, d);
    }
    ask(0);
    __syncthreads();  // all threads have read the data of the previous item in shared memory
    store(0);
    static_assert(kChunk % S::Ahead == 0, "slots of weights repeat with chunks");
    float total[S::Tiles][4] = {};
    const i32 chunks = (from.blocks + kChunk - 1) / kChunk;
    for (i32 chunk = 0; chunk < chunks; ++chunk) {
        __syncthreads();  // the chunk has arrived, and all threads have read the previous chunk
        if (chunk + 1 < chunks) {
            ask(chunk + 1);
        }
#pragma unroll
        for (int b = 0; b < kChunk; ++b) {
            const i32 block = chunk * kChunk + b;
            if (block >= from.blocks) {
                break;
            }
            constexpr int kDepth = S::Ahead;
            W(&now)[2] = held[b % kDepth];
            float part[S::Tiles][4];
            if constexpr (T::Scaled) {
#pragma unroll
                for (int i = 0; i < S::Tiles * 4; ++i) {
                    part[i / 4][i % 4] = 0.0f;
                }
            }
            uint4 right[S::Tiles];
#pragma unroll
            for (int step = 0; step < kSteps; ++step) {
                if (step % 2 == 0) {
#pragma unroll
                    for (int n = 0; n < S::Tiles; ++n) {
                        right[n] = load_shared(place(chunk, b, 8 * n + group, quad, step / 2));
                    }
                }
                u32 gate[2], up[2];
                now[0].numbers(step, gate);
                now[1].numbers(step, up);
                const u32 left[4] = {gate[0], up[0], gate[1], up[1]};
#pragma unroll
                for (int n = 0; n < S::Tiles; ++n) {
                    const u32 other[2] = {step % 2 == 0 ? right[n].x : right[n].z,
                                          step % 2 == 0 ? right[n].y : right[n].w};
                    T::multiply(T::Scaled ? part[n] : total[n], left, other);
                }
            }
            if constexpr (W::MayBeNaN) {
                const u32 first_nans = now[0].nans(), second_nans = now[1].nans();
                // At least one code is a NaN, which is rare.
                if (__any_sync(ptx::kFullMask, ((first_nans | second_nans) & kNaNs) != 0)) {
                    spoil(first_nans, second_nans, part);
                }
            }
            if constexpr (T::Scaled) {
                const float2 own = held_scales[b % kDepth];
#pragma unroll
                for (int n = 0; n < S::Tiles; ++n) {
                    const float2 of = *reinterpret_cast<const float2*>(&shared.scales[chunk & 1][b][8 * n + 2 * quad]);
                    total[n][0] = fmaf(part[n][0], __fmul_rn(__fmul_rn(own.x, of.x), kCodeUp), total[n][0]);
                    total[n][1] = fmaf(part[n][1], __fmul_rn(__fmul_rn(own.x, of.y), kCodeUp), total[n][1]);
                    total[n][2] = fmaf(part[n][2], __fmul_rn(__fmul_rn(own.y, of.x), kCodeUp), total[n][2]);
                    total[n][3] = fmaf(part[n][3], __fmul_rn(__fmul_rn(own.y, of.y), kCodeUp), total[n][3]);
                }
            }
            ask_weights(b % kDepth, block + kDepth);
        }
        if (chunk + 1 < chunks) {
            store(chunk + 1);
        }
    }
    const u32 column = 8 * warp + group;
    if constexpr (S::kDown) {
#pragma unroll
        for (int i = 0; i < 2 * S::Tiles; ++i) {
            const i32 t = i / 2 * 8 + 2 * quad + i % 2;
            if (t >= count) {
                continue;
            }
            u16* out = args.results + static_cast<i64>(args.order[first + t]) * args.hidden + tile * 256;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const i32 to = half * 128 + column;
                if (tile * 256 + to < args.hidden) {
                    out[to] = static_cast<u16>(pack_bf16_fast(total[i / 2][2 * half + i % 2], 0.0f));
                }
            }
        }
    } else {
        float value[2 * S::Tiles];
#pragma unroll
        for (int i = 0; i < 2 * S::Tiles; ++i) {
            value[i] = gated(total[i / 2][i % 2], total[i / 2][2 + i % 2], args.limit);
        }
        if constexpr (T::Scaled) {  // token scale per 128 columns
#pragma unroll
            for (int i = 0; i < 2 * S::Tiles; ++i) {
                float most = fabsf(value[i]);
#pragma unroll
                for (int lanes = 4; lanes < 32; lanes *= 2) {
                    most = fmaxf(most, __shfl_xor_sync(ptx::kFullMask, most, lanes));
                }
                if (group == 0) {
                    shared.largest[warp][i / 2 * 8 + 2 * quad + i % 2] = most;
                }
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < 2 * S::Tiles; ++i) {
            const i32 t = i / 2 * 8 + 2 * quad + i % 2;
            if (t >= count) {
                continue;
            }
            const i64 at = first + t;
            if constexpr (T::Scaled) {
                float most = 0.0f;
#pragma unroll
                for (int w = 0; w < kStreamWarps; ++w) {
                    most = fmaxf(most, shared.largest[w][t]);
                }
                const float scale = index_scale(fminf(most, 3.4028234663852886e38f), !args.pow2);
                const float inverse = __frcp_rn(scale);
                if (warp == 0 && group == 0) {
                    args.inner_scales[at * args.inner_blocks + tile] = scale;
                }
                args.inner[at * args.inner_pitch + tile * 128 + column] =
                    static_cast<u8>(pack_e4m3_fast(__fmul_rn(value[i], inverse), 0.0f));
            } else {
                *reinterpret_cast<u16*>(args.inner + at * args.inner_pitch + (tile * 128 + column) * 2) =
                    static_cast<u16>(pack_bf16_fast(value[i], 0.0f));
            }
        }
    }
}

template <class S>
__device__ __forceinline__ void stream_experts(const ExpertsArgs& args) {
    extern __shared__ __align__(128) u8 dynamic_shared[];
    StreamStorage<S>& shared = *reinterpret_cast<StreamStorage<S>*>(dynamic_shared);
    const ExpertSource from = expert_source<S>(args);
    const i32 listed = args.totals[0];
    for (i32 i = threadIdx.x; i < listed; i += kStreamThreads) {
        shared.list[i] = args.list[i];
    }
    __syncthreads();
    i32 at = 0;
    for (i32 item = blockIdx.x;; item += gridDim.x) {
        i32 local = 0;
        for (; at < listed; ++at) {  // up to 64 tokens of an expert are one group (experts.cuh)
            local = item - shared.list[at].before * from.tiles;
            if (local < from.tiles) {
                break;
            }
        }
        if (at >= listed) {
            return;
        }
        const ListedView e = shared.list[at];
        for (i32 t = 0; t < e.count; t += S::Tokens) {
            stream_tokens<S>(args, shared, from, e.expert, local, e.first + t, min(S::Tokens, e.count - t));
        }
    }
}

}  // namespace portable

#define PORTABLE_EXPERT_STREAM(name, ...)                                                                   \
    extern "C" __global__ void __launch_bounds__(portable::kStreamThreads)                                  \
        name(const __grid_constant__ ExpertsArgs args) {                                                    \
        portable::stream_experts<portable::ExpertStream<__VA_ARGS__>>(args);                                \
    }                                                                                                       \
    extern "C" __device__ const u32 name##_shared =                                                         \
        sizeof(portable::StreamStorage<portable::ExpertStream<__VA_ARGS__>>);
