// Products of the experts: gate and up with the activation, or down, of all experts that have rows, in one launch.
//
// In:    packed weights (pack.cuh); gate and up: x as e4m3 codes with scales [rows, hidden] or bf16; down: inner [pairs, inner]; the sorted order and the
//        list of experts (prepare.cuh).
// Out:   gate and up: inner [pairs, inner] e4m3 with a scale per 128 columns, or bf16. Down: results bf16 [pairs, hidden] in the order of the pairs.
// Block: one per SM, 384 threads. An item is 256 weight rows by up to 64 or 128 tokens of an expert; blocks take every gridDim-th item. One warpgroup
//        copies (feed.cuh) into a ring of stages of 128 bytes of k, two multiply: 64 rows of gate and the same 64 of up each, or 128 rows of down. The
//        instruction has 16, 32, 64 or 128 columns, as many as the group's tokens need.
// Bytes: weights once from memory, in pieces of 32 KB, for each group of tokens; few tokens make it a stream of weights, many are bound by the products.
#pragma once

#include "sm90/experts/feed.cuh"
#include "sm90/experts/output.cuh"

namespace sparrow_experts {

// Four products of a block of k. The sum begins at zero unless it goes on.
template <class T, int N>
__device__ __forceinline__ void multiply_block(float (&d)[N / 2], u64 weights, u64 inputs, bool go_on) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
        ptx::Product<typename T::Pair, N>::run(d, weights + 2 * step, inputs + 2 * step, step > 0 || go_on);
    }
}

// sum += d * (weight scale * token scale), each token's scale from shared memory.
template <int N>
__device__ __forceinline__ void promote(float (&sum)[N / 2], const float (&d)[N / 2], float weight_scale, u32 scales) {
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
        const float2 s = ptx::load_pair(scales + 32 * j);
        const float even = __fmul_rn(weight_scale, s.x), odd = __fmul_rn(weight_scale, s.y);
        sum[4 * j] = __fmaf_rn(d[4 * j], even, sum[4 * j]);
        sum[4 * j + 1] = __fmaf_rn(d[4 * j + 1], odd, sum[4 * j + 1]);
        sum[4 * j + 2] = __fmaf_rn(d[4 * j + 2], even, sum[4 * j + 2]);
        sum[4 * j + 3] = __fmaf_rn(d[4 * j + 3], odd, sum[4 * j + 3]);
    }
}

template <class S, int N>
__device__ void run_item(const ExpertsArgs& args, Storage<S>& shared, const Item& item, i32 blocks, Cursor<S::Stages>& ring, u32 group, u32 t) {
    using T = typename S::Type;
    constexpr bool kTwoSets = N <= 64;  // registers for the products of both operands at a time
    const u32 lane = t % 32;
    float first[N / 2], second[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
        first[i] = second[i] = 0;
    }
    for (i32 block = 0; block < blocks; ++block) {
        ptx::barrier_wait(ptx::shared_address(&shared.full[ring.stage]), ring.parity);
        ptx::fence_async_proxy();  // the tokens were copied by threads
        const u32 at = ptx::shared_address(shared.weights[ring.stage]) + group * 2 * kOperandBytes;
        const u64 weights = ptx::operand_128b(at), inputs = ptx::operand_128b(ptx::shared_address(shared.inputs[ring.stage]));
        constexpr u64 kNext = kOperandBytes >> 4;
        if constexpr (!T::Scaled) {
            ptx::mma_pin(first);
            ptx::mma_pin(second);
            ptx::mma_fence();
            multiply_block<T, N>(first, weights, inputs, block > 0);
            multiply_block<T, N>(second, weights + kNext, inputs, block > 0);
            ptx::mma_commit();
            ptx::mma_wait<0>();
            ptx::mma_pin(first);
            ptx::mma_pin(second);
        } else {
            const u32 scales = ptx::shared_address(&shared.input_scales[ring.stage][2 * (lane % 4)]);
            const float2 own = ptx::load_pair(ptx::shared_address(&shared.weight_scales[ring.stage]) + 8 * group);
            float d[N / 2];
            ptx::mma_pin(d);
            ptx::mma_fence();
            multiply_block<T, N>(d, weights, inputs, false);
            ptx::mma_commit();
            if constexpr (kTwoSets) {
                float e[N / 2];
                ptx::mma_pin(e);
                multiply_block<T, N>(e, weights + kNext, inputs, false);
                ptx::mma_commit();
                ptx::mma_wait<1>();
                ptx::mma_pin(d);
                promote<N>(first, d, own.x, scales);
                ptx::mma_wait<0>();
                ptx::mma_pin(e);
                promote<N>(second, e, own.y, scales);
            } else {
                ptx::mma_wait<0>();
                ptx::mma_pin(d);
                promote<N>(first, d, own.x, scales);
                ptx::mma_pin(d);
                ptx::mma_fence();
                multiply_block<T, N>(d, weights + kNext, inputs, false);
                ptx::mma_commit();
                ptx::mma_wait<0>();
                ptx::mma_pin(d);
                promote<N>(second, d, own.y, scales);
            }
        }
        __syncwarp();
        if (lane == 0) {
            ptx::barrier_arrive(ptx::shared_address(&shared.empty[ring.stage]));
        }
        ring.advance();
    }
    if constexpr (S::kStep == Step::kGateUp) {
        write_gated<S, N>(args, shared, item, first, second, group, t);
    } else {
        i32* pairs = reinterpret_cast<i32*>(shared.largest[2 * group]);
        if (static_cast<i32>(t) < item.count) {
            pairs[t] = args.order[item.first + t];
        }
        const i32 column = item.tile * kTileRows + static_cast<i32>(group) * 128;
        write_results<S, N>(args, shared, item, first, column, group, t);
        write_results<S, N>(args, shared, item, second, column + kOperandRows, group, t);
    }
}

template <class S>
__device__ void multiply_experts(const ExpertsArgs& args) {
    Storage<S>& shared = storage<S>();
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::Stages; ++i) {
            ptx::barrier_init(ptx::shared_address(&shared.full[i]), 128 + 1);
            ptx::barrier_init(ptx::shared_address(&shared.empty[i]), 4 * kGroups);
        }
        ptx::barrier_init_fence();
    }
    ptx::wait_for_previous_kernel();
    const i32 listed = args.totals[0];
    for (i32 i = threadIdx.x; i < listed; i += kThreads) {
        shared.list[i] = args.list[i];
    }
    if (threadIdx.x == 0) {
        shared.listed = listed;
    }
    __syncthreads();
    const u32 group = __shfl_sync(ptx::kFullMask, threadIdx.x / 128, 0);
    if (group == kGroups) {
        ptx::registers_shrink<kCopyRegisters>();
        feed<S>(args, shared);
        ptx::release_next_kernel();
    } else {
        ptx::registers_grow<kMathRegisters>();
        const u32 t = threadIdx.x % 128;
        const bool gate_up = S::kStep == Step::kGateUp;
        const i32 blocks = gate_up ? args.hidden_blocks : args.inner_blocks;
        const i32 tiles = gate_up ? args.inner_tiles : args.hidden_tiles;
        Walk walk;
        Cursor<S::Stages> ring;
        Item item;
        while (walk.next(shared, tiles, args.group_rows, item)) {
            const i32 columns = columns_of(item.count);
            if (columns == 16) {
                run_item<S, 16>(args, shared, item, blocks, ring, group, t);
            } else if (columns == 32) {
                run_item<S, 32>(args, shared, item, blocks, ring, group, t);
            } else if (S::MaxTokens == 64 || columns == 64) {
                run_item<S, 64>(args, shared, item, blocks, ring, group, t);
            } else if constexpr (S::MaxTokens > 64) {
                run_item<S, 128>(args, shared, item, blocks, ring, group, t);
            }
        }
    }
}

}  // namespace sparrow_experts
