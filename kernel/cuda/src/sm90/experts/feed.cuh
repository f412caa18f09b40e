// The copying warpgroup: keeps the ring of stages full. A stage is 128 bytes of k: a tile of packed weights, 32 KB in
// one piece by the copy engine, the tokens' rows, gathered 16 bytes at a time to where the swizzle wants them, and for
// e4m3 the scales of both. Tokens beyond the group's count and columns beyond the row's end are zeros.
#pragma once

#include "sm90/experts/config.h"

namespace sparrow_experts {

// Where tokens come from.
struct Source {
    const u8* rows;
    i64 pitch;  // bytes between rows
    u32 row_bytes;
    const float* scales;  // [rows, blocks]
    const u8* weights;
    const float2* weight_scales;
    i32 blocks, tiles;
};

template <class S>
__device__ __forceinline__ Source source(const ExpertsArgs& args) {
    if constexpr (S::kStep == Step::kGateUp) {
        const bool scaled = S::Type::Scaled;
        return {scaled ? args.codes : reinterpret_cast<const u8*>(args.x),
                scaled ? args.hidden_pitch : 2 * args.x_stride,
                static_cast<u32>(args.hidden * S::Type::Bytes),
                args.code_scales,
                args.gate_up,
                args.gate_up_scales,
                args.hidden_blocks,
                args.inner_tiles};
    } else {
        return {args.inner,        args.inner_pitch, static_cast<u32>(args.inner_pitch),
                args.inner_scales, args.down,        args.down_scales,
                args.inner_blocks, args.hidden_tiles};
    }
}

// Stages whose tokens are on their way: a stage is handed over after the copies of the next one were issued, when this
// thread's copies have landed and are visible to the tensor cores.
template <class S>
struct Handover {
    Storage<S>& shared;
    i32 last = -1;

    template <int Later>
    __device__ __forceinline__ void finish() {
        if (last >= 0) {
            ptx::copies_wait<Later>();
            ptx::fence_async_proxy();
            ptx::barrier_arrive(ptx::shared_address(&shared.full[last]));
        }
    }
    __device__ __forceinline__ void issued(u32 stage) {
        ptx::copies_commit();
        finish<1>();
        last = static_cast<i32>(stage);
    }
};

// Starts the bulk copy of a tile of weights.
template <class S>
__device__ __forceinline__ void load_weights(Storage<S>& shared, u32 stage, const u8* tile, u64 policy) {
    const u32 full = ptx::shared_address(&shared.full[stage]);
    ptx::barrier_expect(full, kTileBytes);
    ptx::load_bytes(ptx::shared_address(shared.weights[stage]), tile, kTileBytes, full, policy);
}

// Where the tiles of an item's weights begin.
template <class S>
__device__ __forceinline__ const u8* weights_of(const Source& from, const Item& item) {
    return from.weights +
           (static_cast<i64>(item.expert) * from.tiles + item.tile) * from.blocks * Stored<typename S::Type>::TileBytes;
}

// The row that the token at a place of the sorted order is read from.
template <class S>
__device__ __forceinline__ u32 row_of(const ExpertsArgs& args, i32 place) {
    return S::kStep == Step::kGateUp ? args.order[place] / args.top : place;
}

// The tokens of an item that a thread copies: a piece of 16 bytes of every 16th row.
template <class S>
struct Tokens {
    static constexpr int kSlots = S::MaxTokens / 16;
    u32 row[kSlots];
    i32 count, columns;
    u32 t, chunk;

    __device__ __forceinline__ Tokens(const ExpertsArgs& args, const Item& item, u32 t)
        : count(item.count), columns(columns_of(item.count)), t(t), chunk(t % 8) {
#pragma unroll
        for (int j = 0; j < kSlots; ++j) {
            const i32 token = t / 8 + 16 * j;
            row[j] = token < count ? row_of<S>(args, item.first + token) : 0;
        }
    }

    // Starts the copies of one block of k to a stage.
    __device__ __forceinline__ void copy(const Source& from, u32 inputs, i32 block) const {
        const u32 byte = block * kBlockBytes + chunk * 16;
        const bool inside = byte < from.row_bytes;
#pragma unroll
        for (int j = 0; j < kSlots; ++j) {
            if (16 * j < columns) {
                const u32 token = t / 8 + 16 * j;
                const bool valid = inside && static_cast<i32>(token) < count;
                ptx::copy_16(inputs + token * kBlockBytes + ((chunk ^ (token & 7)) << 4),
                             from.rows + row[j] * from.pitch + (inside ? byte : 0), valid);
            }
        }
    }
};

template <class S>
__device__ void feed(const ExpertsArgs& args, Storage<S>& shared) {
    const Source from = source<S>(args);
    const u32 t = threadIdx.x % 128;
    Walk<S> walk;
    Cursor ring;
    Handover<S> handover{shared};
    Item item;
    // Down: the list is older than the kernel before, and weights are older still: the first stages are loaded
    // before waiting for that kernel.
    i32 primed = 0;
    if constexpr (S::kStep == Step::kDown) {
        Walk<S> first;
        if (t == 0 && first.next(shared, from.tiles, item)) {
            const u8* weights = weights_of<S>(from, item);
            for (; primed < min(S::Stages, from.blocks); ++primed) {
                load_weights(shared, primed, weights + static_cast<i64>(primed) * kTileBytes, ptx::kEvictFirst);
            }
        }
        ptx::wait_for_previous_kernel();
    }
    while (walk.next(shared, from.tiles, item)) {
        const Tokens<S> tokens(args, item, t);
        const u8* weights = weights_of<S>(from, item);
        // Scales are loaded a block ahead.
        const float2* weight_scales = nullptr;
        const float* token_scales = nullptr;
        float2 weight_scale = {};
        float token_scale = 0;
        if (S::Type::Scaled && static_cast<i32>(t) < item.count) {
            weight_scales =
                from.weight_scales + (static_cast<i64>(item.expert) * from.tiles + item.tile) * from.blocks;
            token_scales = from.scales + static_cast<i64>(row_of<S>(args, item.first + t)) * from.blocks;
            weight_scale = __ldg(weight_scales);
            token_scale = token_scales[0];
        }
        const u64 policy = S::MaxTokens > 64 && item.count > 64 ? ptx::kEvictNormal : ptx::kEvictFirst;
        for (i32 block = 0; block < from.blocks; ++block) {
            ptx::barrier_wait(ptx::shared_address(&shared.empty[ring.stage]), ring.parity ^ 1);
            if (t == 0 && primed-- <= 0) {
                load_weights(shared, ring.stage, weights + static_cast<i64>(block) * kTileBytes, policy);
            }
            tokens.copy(from, ptx::shared_address(shared.inputs[ring.stage]), block);
            if constexpr (S::Type::Scaled) {
                float* scales = shared.scales[ring.stage][0];
                if (S::MaxTokens > 64 && tokens.columns > 64) {
                    scales[t] = token_scale;
                    if (t == 0) {
                        scales[128] = weight_scale.x;
                        scales[129] = weight_scale.y;
                    }
                } else if (t < S::MaxTokens) {
                    scales[scale_at<S>(t)] = __fmul_rn(weight_scale.x, token_scale);
                    scales[4 * S::ScalePitch + scale_at<S>(t)] = __fmul_rn(weight_scale.y, token_scale);
                }
                if (static_cast<i32>(t) < item.count && block + 1 < from.blocks) {
                    weight_scale = __ldg(weight_scales + block + 1);
                    token_scale = token_scales[block + 1];
                }
            }
            handover.issued(ring.stage);
            ring.advance(S::Stages);
        }
    }
    handover.template finish<0>();
}

}  // namespace sparrow_experts
