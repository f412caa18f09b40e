// The copy warpgroup, which fills the ring of stages. A stage holds 128 bytes of k. The copy engine loads a tile of
// packed weights in one bulk copy (32 KB; 17 KB for folded e2m1). The threads gather the rows of the tokens, 16 bytes
// at a time, to their swizzled positions, and for e4m3 the scales of tokens and weights. Tokens beyond the count of the
// group and columns beyond the end of a row are zeros.
#pragma once

#include "sm90/experts/source.cuh"

namespace sparrow_experts {

// Delays the arrival of this thread at the full barrier of a stage until the copies of the next stage have been issued.
// When it arrives, its copies to the stage are complete and visible to the tensor cores.
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

// Starts the bulk copy of a weight tile to a stage.
template <class S>
__device__ __forceinline__ void load_weights(Storage<S>& shared, u32 stage, const u8* tile, u64 policy) {
    const u32 full = ptx::shared_address(&shared.full[stage]);
    ptx::barrier_expect(full, S::StageBytes);
    ptx::load_bytes(ptx::shared_address(shared.weights[stage]), tile, S::StageBytes, full, policy);
}

// The part of an item's tokens that a thread copies: 16 bytes of the 128 of k, of every 16th token row.
template <class S>
struct Tokens {
    static constexpr int kSlots = S::MaxTokens / 16;
    static constexpr bool kSorted = S::kStep == Step::kDown;  // token rows are contiguous
    u32 row[kSorted ? 1 : kSlots];
    i32 count, columns;
    u32 t, chunk;

    __device__ __forceinline__ Tokens(const ExpertsArgs& args, const Item& item, u32 t)
        : count(item.count), columns(columns_of(item.count)), t(t), chunk(t % 8) {
#pragma unroll
        for (int j = 0; j < (kSorted ? 1 : kSlots); ++j) {
            const i32 token = t / 8 + 16 * j;
            row[j] = kSorted ? item.first : token < count ? row_of<S>(args, item.first + token) : 0;
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
                const u32 at = kSorted ? row[0] + (valid ? token : 0) : row[kSorted ? 0 : j];
                ptx::copy_16(inputs + token * kBlockBytes + ((chunk ^ (token & 7)) << 4),
                             from.rows + at * from.pitch + (inside ? byte : 0), valid);
            }
        }
    }
};

// Loads tokens and weights of all blocks of k, for all items of the thread block.
template <class S>
__device__ void feed(const ExpertsArgs& args, Storage<S>& shared) {
    const Source from = source<S>(args);
    const u32 t = threadIdx.x % 128;
    Walk<S> walk;
    Cursor ring;
    Handover<S> handover{shared};
    Item item;
    // For down, the list of experts and the weights were written before the previous kernel, so the first stages are
    // loaded before waiting for that kernel.
    i32 primed = 0;
    if constexpr (S::kStep == Step::kDown) {
        Walk<S> first;
        if (t == 0 && first.next(shared, from.tiles, item)) {
            const u8* weights = weights_of<S>(from, item);
            for (; primed < min(S::Stages, from.blocks); ++primed) {
                load_weights(shared, primed, weights + static_cast<i64>(primed) * S::StageBytes, ptx::kEvictFirst);
            }
        }
    }
    if constexpr (S::kStep == Step::kDown) {
        ptx::wait_for_previous_kernel();
    }
    while (walk.next(shared, from.tiles, item)) {
        const Tokens<S> tokens(args, item, t);
        const u8* weights = weights_of<S>(from, item);
        const float2* weight_scales = nullptr;
        const float* token_scales = nullptr;
        const bool own = static_cast<i32>(t) < item.count;  // this thread has a token scale to copy
        if constexpr (S::Type::Scaled) {
            weight_scales =
                from.weight_scales + (static_cast<i64>(item.expert) * from.tiles + item.tile) * from.blocks;
            token_scales = from.scales + (own ? static_cast<i64>(row_of<S>(args, item.first + t)) * from.blocks : 0);
        }
        const u64 policy = S::MaxTokens > 64 && item.count > 64 ? ptx::kEvictNormal : ptx::kEvictFirst;
        for (i32 block = 0; block < from.blocks; ++block) {
            ptx::barrier_wait(ptx::shared_address(&shared.empty[ring.stage]), ring.parity ^ 1);
            if (t == 0 && primed-- <= 0) {
                load_weights(shared, ring.stage, weights + static_cast<i64>(block) * S::StageBytes, policy);
            }
            tokens.copy(from, ptx::shared_address(shared.inputs[ring.stage]), block);
            if constexpr (S::Type::Scaled) {
                float* scales = shared.scales[ring.stage];
                if (static_cast<i32>(t) < tokens.columns) {
                    copy_4(&scales[scale_at<S>(t, tokens.columns)], token_scales + block, own);
                }
                if (t < 2) {
                    copy_4(&scales[4 * S::ScalePitch + t], &weight_scales[block].x + t);
                }
            }
            handover.issued(ring.stage);
            ring.advance(S::Stages);
        }
    }
    handover.template finish<0>();
}

}  // namespace sparrow_experts
