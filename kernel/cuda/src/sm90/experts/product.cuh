// Matrix products of all experts that have rows, in one launch: gate and up with the activation, or down.
//
// In:    packed weights (pack.cuh, pack_e2m1.cuh); gate and up: x as e4m3 codes with scales [rows, hidden], or bf16;
//        down: inner [pairs, inner]; the sorted order and the list of experts (prepare.cuh).
// Out:   gate and up: inner [pairs, inner] e4m3 with a scale per 128 columns, or bf16. Down: results bf16 [pairs,
//        hidden] in the order of the pairs.
// Block: one per SM, 384 threads. An item is 256 weight rows by up to 64 or 128 tokens of an expert; a block takes
//        every gridDim-th item. One warpgroup copies (feed.cuh) into a ring of stages of 128 bytes of k. The other
//        two multiply (config.h), and for folded weights first widen e2m1 to e4m3 (folded.cuh). wide.cuh has the
//        kernel for folded weights and many tokens.
// Bytes: weights are read once from memory for each group of tokens, in pieces of 32 KB. With few tokens the kernel
//        is limited by memory bandwidth, with many tokens by the tensor cores.
// H200:  hidden 7168, inner 2048, e4m3, gate and up / down. 8 experts of 1 row 57 / 31 us, 64 of 8 rows 417 / 222 (4.5
//        / 4.3 TB/s), 64 of 128 rows 490 / 277, 64 of 512 rows 1570 / 855 (1225 / 1125 TFLOP/s, 74 / 68 % of 1650).
//        e2m1 widened to e4m3: 64 of 8 rows 251 / 139 (4.0 / 3.7 TB/s), 64 of 64 rows 412 / 227. bf16, 64 of 512
//        rows: 2510 / 1300 (767 / 738 TFLOP/s, 97 / 93 % of 790).
#pragma once

#include "sm90/experts/e2m1.cuh"
#include "sm90/experts/folded.cuh"
#include "sm90/experts/output.cuh"
#include "sm90/experts/output_many.cuh"

namespace sparrow_experts {

// Loads the scales of this lane's tokens: two of every eight.
template <int N>
__device__ __forceinline__ void load_scales(float (&s)[N / 4], u32 scales) {
#pragma unroll
    for (int j = 0; j < N / 4; j += 4) {
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(s[j]), "=f"(s[j + 1]), "=f"(s[j + 2]), "=f"(s[j + 3])
                     : "r"(scales + 4 * j)
                     : "memory");
    }
}

// Computes sum += d * (weight * scale), with one weight scale and the scale s of each token.
template <int N>
__device__ __forceinline__ void promote(float (&sum)[N / 2], const float (&d)[N / 2], float weight,
                                        const float (&scales)[N / 4]) {
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
        const float even = __fmul_rn(weight, scales[2 * j]), odd = __fmul_rn(weight, scales[2 * j + 1]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            sum[4 * j + i] = __fmaf_rn(d[4 * j + i], i % 2 == 0 ? even : odd, sum[4 * j + i]);
        }
    }
}

// Computes sum += d * scale of the token. Tokens are rows of the tile, and a lane has two: upper and lower.
__device__ __forceinline__ void promote_rows(float (&sum)[64], const float (&d)[64], float upper, float lower) {
#pragma unroll
    for (int i = 0; i < 64; ++i) {
        sum[i] = __fmaf_rn(d[i], i / 2 % 2 == 0 ? upper : lower, sum[i]);
    }
}

// Computes sum += d * (weight * scale) as promote does. It reads the scales of four tokens at a time from shared
// memory, to save registers.
template <int N>
__device__ __forceinline__ void promote_from(float (&sum)[N / 2], const float (&d)[N / 2], float weight, u32 scales) {
#pragma unroll
    for (int j = 0; j < N / 16; ++j) {
        const uint4 four = ptx::load_vector(scales + 16 * j);
        const float factors[4] = {
            __fmul_rn(weight, __uint_as_float(four.x)), __fmul_rn(weight, __uint_as_float(four.y)),
            __fmul_rn(weight, __uint_as_float(four.z)), __fmul_rn(weight, __uint_as_float(four.w))};
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            sum[8 * j + i] = __fmaf_rn(d[8 * j + i], factors[i / 4 * 2 + i % 2], sum[8 * j + i]);
        }
    }
}

// Multiplies up to 64 tokens by weights that are widened in registers. With one block per SM there are two sets of
// accumulators: the weights of a block of k are widened while the products of the previous block run. With two blocks
// per SM, each has one set, and the products of one block overlap the widening of the other.
template <class S, int N>
__device__ __forceinline__ void multiply_held(float (&first)[N / 2], float (&second)[N / 2], Storage<S>& shared,
                                              i32 blocks, Cursor& ring, u32 group, u32 t) {
    constexpr bool kTwo = S::Blocks == 1;
    constexpr u32 kPiece = Stored<Folded>::PieceBytes;
    const u32 lane = t % 32, own = (4 * group + t / 32) * kPiece;
    const u32 codes = ptx::shared_address(shared.incoming.codes);
    const auto multiply = [&](float(&sum)[N / 2], const Piece& piece, u32 stage) {
        u32 a[kSteps][4];
        // A single branch for all steps: code after a conditional load waits for the load even if it is skipped.
        if (__any_sync(ptx::kFullMask, small_scales(piece.scales))) {
#pragma unroll
            for (int g = 0; g < kSteps; ++g) {
                widen_columns<true>(a[g], piece.parts[g / 2], piece.scales, g, codes);
            }
        } else {
#pragma unroll
            for (int g = 0; g < kSteps; ++g) {
                widen_columns<false>(a[g], piece.parts[g / 2], piece.scales, g, codes);
            }
        }
        const u64 inputs = ptx::operand_128b(ptx::shared_address(shared.inputs[stage]));
        ptx::mma_pin(sum);
        ptx::mma_fence();
#pragma unroll
        for (int g = 0; g < kSteps; ++g) {
            ptx::HeldProduct<N>::run(sum, a[g], inputs + 2 * g, g > 0);
        }
        ptx::mma_commit();
    };
    const auto full = [&](const Cursor& at) {
        ptx::barrier_wait(ptx::shared_address(&shared.full[at.stage]), at.parity);
    };
    const auto piece_at = [&](u32 stage) { return ptx::shared_address(shared.weights[stage]) + own; };
    Piece upper;                   // a lane's part of 16 weight rows of the first half of the tile
    [[maybe_unused]] Piece lower;  // a lane's part of 16 weight rows of the second half of the tile
    full(ring);
    upper.load(piece_at(ring.stage), lane);
    if constexpr (kTwo) {
        lower.load(piece_at(ring.stage) + 8 * kPiece, lane);
    }
    for (i32 block = 0; block < blocks; ++block) {
        const u32 stage = ring.stage, scales = ptx::shared_address(&shared.scales[stage]);
        const u32 tokens = scales + lane % 4 * S::ScalePitch * 4;
        float d[N / 2];
        multiply(d, upper, stage);
        ring.advance(S::Stages);
        if constexpr (kTwo) {
            float e[N / 2];
            multiply(e, lower, stage);
            if (block + 1 < blocks) {
                full(ring);
                upper.load(piece_at(ring.stage), lane);
                lower.load(piece_at(ring.stage) + 8 * kPiece, lane);
            }
            float own_scales[N / 4];
            load_scales<N>(own_scales, tokens);
            const float2 halves = ptx::load_pair(scales + 16 * S::ScalePitch);
            ptx::mma_wait<1>();
            ptx::mma_pin(d);
            promote<N>(first, d, halves.x, own_scales);
            ptx::mma_wait<0>();
            ptx::mma_pin(e);
            arrive_warp(ptx::shared_address(&shared.empty[stage]));
            promote<N>(second, e, halves.y, own_scales);
        } else {
            upper.load(piece_at(stage) + 8 * kPiece, lane);
            ptx::mma_wait<0>();
            ptx::mma_pin(d);
            promote_from<N>(first, d, ptx::load_float(scales + 16 * S::ScalePitch), tokens);
            multiply(d, upper, stage);
            if (block + 1 < blocks) {
                full(ring);
                upper.load(piece_at(ring.stage), lane);
            }
            ptx::mma_wait<0>();
            ptx::mma_pin(d);
            promote_from<N>(second, d, ptx::load_float(scales + 16 * S::ScalePitch + 4), tokens);
            arrive_warp(ptx::shared_address(&shared.empty[stage]));
        }
    }
}

// Computes an item of up to 64 tokens: weights are rows of the tile and tokens are columns.
template <class S, int N>
__device__ void run_item(const ExpertsArgs& args, Storage<S>& shared, const Item& item, i32 blocks,
                         Cursor& ring, u32 group, u32 t) {
    using T = typename S::Type;
    const u32 lane = t % 32;
    float first[N / 2], second[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
        first[i] = second[i] = 0;
    }
    if constexpr (S::kStep == Step::kDown) {
        if (static_cast<i32>(t) < item.count) {
            copy_4(&shared.pairs[group][t], args.order + item.first + t);
        }
        ptx::copies_commit();
    }
    if constexpr (S::Held) {
        multiply_held<S, N>(first, second, shared, blocks, ring, group, t);
    }
    u32 before = 0;  // bf16: the stage that the products in flight still read
    for (i32 block = 0; block < (S::Held ? 0 : blocks); ++block) {
        ptx::barrier_wait(ptx::shared_address(&shared.full[ring.stage]), ring.parity);
        const u32 at = ptx::shared_address(shared.weights[ring.stage]) + group * kOperandBytes;
        const u64 weights = ptx::operand_128b(at),
                  inputs = ptx::operand_128b(ptx::shared_address(shared.inputs[ring.stage]));
        constexpr u64 kNext = kTileBytes / 2 >> 4;  // descriptor offset of the second half of the weight tile
        if constexpr (!T::Scaled) {
            // The products of the previous block of k are still in flight. Its stage is released when they are
            // complete.
            if (block == 0) {
                ptx::mma_pin(first);
                ptx::mma_pin(second);
            }
            ptx::mma_fence();
            multiply_block<T, N>(first, weights, inputs, block > 0);
            multiply_block<T, N>(second, weights + kNext, inputs, block > 0);
            ptx::mma_commit();
            if (block > 0) {
                ptx::mma_wait<1>();
                arrive_warp(ptx::shared_address(&shared.empty[before]));
            }
            before = ring.stage;
        } else {
            const u32 scales = ptx::shared_address(&shared.scales[ring.stage]);
            float d[N / 2], e[N / 2];
            ptx::mma_pin(d);
            ptx::mma_fence();
            multiply_block<T, N>(d, weights, inputs, false);
            ptx::mma_commit();
            ptx::mma_pin(e);
            multiply_block<T, N>(e, weights + kNext, inputs, false);
            ptx::mma_commit();
            float own[N / 4];
            load_scales<N>(own, scales + lane % 4 * S::ScalePitch * 4);
            const float2 halves = ptx::load_pair(scales + 16 * S::ScalePitch);
            ptx::mma_wait<1>();
            ptx::mma_pin(d);
            promote<N>(first, d, halves.x, own);
            ptx::mma_wait<0>();
            ptx::mma_pin(e);
            promote<N>(second, e, halves.y, own);
        }
        if constexpr (T::Scaled) {
            arrive_warp(ptx::shared_address(&shared.empty[ring.stage]));
        }
        ring.advance(S::Stages);
    }
    if constexpr (!T::Scaled) {
        ptx::mma_wait<0>();
        ptx::mma_pin(first);
        ptx::mma_pin(second);
        arrive_warp(ptx::shared_address(&shared.empty[before]));
    }
    if constexpr (S::kStep == Step::kGateUp) {
        write_gated<S, N>(args, shared, item, first, second, group, t);
    } else {
        ptx::copies_wait<0>();  // the copies of the pairs; a barrier follows before the pairs are read
        const i32 column = item.tile * kTileRows + static_cast<i32>(group) * kOperandRows;
        write_results<S, N>(args, shared, item, first, column, group, t);
        write_results<S, N>(args, shared, item, second, column + kTileRows / 2, group, t);
    }
}

// Computes 64 of an item's more than 64 tokens: multiplies them by both halves of the weight tile.
template <class S>
__device__ void run_many(const ExpertsArgs& args, Storage<S>& shared, const Item& item, i32 blocks,
                         Cursor& ring, u32 group, u32 t) {
    using T = typename S::Type;
    constexpr int N = 128;
    const u32 lane = t % 32;
    float first[N / 2], second[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
        first[i] = second[i] = 0;
    }
    i32* pairs = shared.warp_pairs[4 * group + t / 32];
    if constexpr (S::kStep == Step::kDown) {
        const i32 token = 64 * static_cast<i32>(group) + static_cast<i32>(t / 32 * 16 + lane);
        if (lane < 16 && token < item.count) {
            copy_4(pairs + lane, args.order + item.first + token);
        }
        ptx::copies_commit();
    }
    u32 before = 0;  // bf16: the stage that the products in flight still read
    constexpr u64 kNext = kTileBytes / 2 >> 4;  // descriptor offset of the second half of the weight tile
    u64 inputs, weights;                        // descriptors of the tokens and weights of the next block of k
    u32 scales;
    bool arrived;  // the stage of the next block of k is full
    // The addresses and descriptors of the next block of k are computed while products run, because instructions
    // between the end of a warpgroup's products and its next products can leave the tensor cores idle.
    const auto prepare = [&](const Cursor& at) {
        inputs = ptx::operand_128b(ptx::shared_address(shared.inputs[at.stage]) + group * kOperandBytes);
        weights = ptx::operand_128b(ptx::shared_address(shared.weights[at.stage]));
        scales = ptx::shared_address(shared.scales[at.stage]);
        arrived = barrier_test(ptx::shared_address(&shared.full[at.stage]), at.parity);
    };
    prepare(ring);
    for (i32 block = 0; block < blocks; ++block) {
        if (!arrived) {
            ptx::barrier_wait(ptx::shared_address(&shared.full[ring.stage]), ring.parity);
        }
        const u32 stage = ring.stage;
        ring.advance(S::Stages);
        if constexpr (!T::Scaled) {
            // The products of the previous block of k are still in flight. Its stage is released when they are
            // complete.
            if (block == 0) {
                ptx::mma_pin(first);
                ptx::mma_pin(second);
            }
            ptx::mma_fence();
            multiply_block<T, N>(first, inputs, weights, block > 0);
            multiply_block<T, N>(second, inputs, weights + kNext, block > 0);
            ptx::mma_commit();
            if (block > 0) {
                ptx::mma_wait<1>();
                arrive_warp(ptx::shared_address(&shared.empty[before]));
            }
            before = stage;
            if (block + 1 < blocks) {
                prepare(ring);
            }
        } else {
            float d[N / 2];
            ptx::mma_pin(d);
            ptx::mma_fence();
            multiply_block<T, N>(d, inputs, weights, false);
            ptx::mma_commit();
            const u32 own = scales + (64 * group + t / 32 * 16 + lane / 4) * 4;
            const float upper = ptx::load_float(own), lower = ptx::load_float(own + 32);
            const float2 halves = ptx::load_pair(scales + 16 * S::ScalePitch);
            ptx::mma_wait<0>();
            ptx::mma_pin(d);
            promote_rows(first, d, __fmul_rn(halves.x, upper), __fmul_rn(halves.x, lower));
            ptx::mma_pin(d);
            ptx::mma_fence();
            multiply_block<T, N>(d, inputs, weights + kNext, false);
            ptx::mma_commit();
            if (block + 1 < blocks) {
                prepare(ring);
            }
            ptx::mma_wait<0>();
            arrive_warp(ptx::shared_address(&shared.empty[stage]));
            ptx::mma_pin(d);
            promote_rows(second, d, __fmul_rn(halves.y, upper), __fmul_rn(halves.y, lower));
        }
    }
    if constexpr (!T::Scaled) {
        ptx::mma_wait<0>();
        ptx::mma_pin(first);
        ptx::mma_pin(second);
        arrive_warp(ptx::shared_address(&shared.empty[before]));
    }
    if constexpr (S::kStep == Step::kGateUp) {
        write_gated_rows<S>(args, shared, item, first, second, group, t);
    } else {
        ptx::copies_wait<0>();
        __syncwarp();
        const i32 token = 64 * static_cast<i32>(group) + static_cast<i32>(t / 32) * 16, column = item.tile * kTileRows;
        const u32 staged = warp_staged(shared, group, t);
        write_result_rows(args, item, first, pairs, column, 64, token, staged, lane);
        write_result_rows(args, item, second, pairs, column + kTileRows / 2, 64, token, staged, lane);
    }
}

template <class S>
__device__ void multiply_experts(const ExpertsArgs& args) {
    Storage<S>& shared = storage<S>();
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::Stages; ++i) {
            // A full barrier counts the copy threads and, if the copy engine loads the weights to the stage, the thread
            // that announces the bytes.
            ptx::barrier_init(ptx::shared_address(&shared.full[i]), 128 + (shared.Widened ? 0 : 1));
            ptx::barrier_init(ptx::shared_address(&shared.empty[i]), 4 * kGroups);
        }
        if constexpr (Storage<S>::Widened) {
            for (u32 i = 0; i < sizeof(shared.incoming.arrived) / sizeof(u64); ++i) {
                ptx::barrier_init(ptx::shared_address(&shared.incoming.arrived) + i * sizeof(u64), 1);
            }
        }
        ptx::barrier_init_fence();
    }
    if constexpr (S::kStep == Step::kGateUp) {
        ptx::wait_for_previous_kernel();
    }
    const i32 listed = *const_cast<const volatile i32*>(args.totals);
    for (i32 i = threadIdx.x; i < listed; i += S::Threads) {
        const volatile i32* from = reinterpret_cast<const i32*>(args.list + i);
        shared.list[i] = pack_listed(from[0], from[1], from[3]);
    }
    if (threadIdx.x == 0) {
        shared.list[listed] = pack_listed(0, const_cast<const volatile i32*>(args.totals)[2], 0);
        shared.listed = listed;
    }
    if constexpr (S::Held) {
        if (threadIdx.x < kExponents * 8) {
            shared.incoming.codes[threadIdx.x / 8][threadIdx.x % 8] =
                folded_code(threadIdx.x % 8, static_cast<i32>(threadIdx.x / 8) + kLeastExponent);
        }
    }
    __syncthreads();
    const u32 group = __shfl_sync(ptx::kFullMask, threadIdx.x / 128, 0);
    if (group == kGroups) {
        ptx::registers_shrink<S::CopyRegisters>();
        if constexpr (Storage<S>::Widened) {
            feed_widened<S>(args, shared);
        } else {
            feed<S>(args, shared);
        }
        ptx::release_next_kernel();
    } else {
        ptx::registers_grow<S::MathRegisters>();
        const u32 t = threadIdx.x % 128;
        const bool gate_up = S::kStep == Step::kGateUp;
        const i32 blocks = gate_up ? args.hidden_blocks : args.inner_blocks;
        const i32 tiles = gate_up ? args.inner_tiles : args.hidden_tiles;
        Walk<S> walk;
        Cursor ring;
        Item item;
        while (walk.next(shared, tiles, item)) {
            const i32 columns = columns_of(item.count);
            if (S::MaxTokens == 16 || columns == 16) {
                run_item<S, 16>(args, shared, item, blocks, ring, group, t);
            } else if constexpr (S::MaxTokens > 16) {
                if (columns == 32) {
                    run_item<S, 32>(args, shared, item, blocks, ring, group, t);
                } else if (S::MaxTokens == 64 || columns == 64) {
                    run_item<S, 64>(args, shared, item, blocks, ring, group, t);
                } else if constexpr (S::MaxTokens > 64) {
                    run_many<S>(args, shared, item, blocks, ring, group, t);
                }
            }
        }
    }
}

}  // namespace sparrow_experts
