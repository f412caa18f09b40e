// Work of the portable products with packed weights (arguments: smxx/packed/args.h; formats: smxx/packed/decode.cuh).
//
// Bits: k is cut into args.parts parts of whole units; the number of parts depends only on the shape of the weight. The
// sum of a part starts at zero and adds steps of 16 columns in order; parts are added in order. The bits of an element
// depend only on its token row, its column and the weight, not on the kernel or on the number of tokens.
#pragma once

#include "ptx/matrix.cuh"
#include "ptx/mma.cuh"
#include "sm80/mma.cuh"
#include "smxx/packed/decode.cuh"
#include "smxx/packed/output.cuh"

namespace sparrow_packed {

constexpr u32 kBlockShared = 101376;  // the most shared memory that a block of a consumer card can have

// Iterates over the items of a thread block: every gridDim-th item. All warps call it together with the same result.
template <class S>
struct Items {
    i32 at, listed, item;

    static __device__ __forceinline__ Items first(const PackedArgs& args) {
        return {0, args.order != nullptr ? args.totals[0] : 1, static_cast<i32>(blockIdx.x)};
    }
    __device__ __forceinline__ static i32 groups_of(i32 count) { return (count + S::Tokens - 1) / S::Tokens; }
    __device__ __forceinline__ bool next(const PackedArgs& args, Item& out) {
        const i32 parts = S::Whole ? 1 : args.parts, tiles = args.tiles * kStripes / S::Stripes;
        const u32 lane = threadIdx.x % 32;
        // Lanes look at 32 experts at a time. Experts without rows are not listed.
        while (at < listed) {
            ListedView e = {0, 0, args.rows, 0};
            if (args.order != nullptr) {
                e = args.list[min(at + static_cast<i32>(lane), listed - 1)];
            }
            const bool before_end = item < (e.before + groups_of(e.count)) * tiles * parts;
            const u32 found = __ballot_sync(ptx::kFullMask, before_end);
            if (found == 0) {
                at += 32;
                continue;
            }
            const u32 from = __ffs(found) - 1;
            at += from;
            e.expert = __shfl_sync(ptx::kFullMask, e.expert, from);
            e.first = __shfl_sync(ptx::kFullMask, e.first, from);
            e.count = __shfl_sync(ptx::kFullMask, e.count, from);
            e.before = __shfl_sync(ptx::kFullMask, e.before, from);
            const i32 groups = groups_of(e.count), local = item - e.before * tiles * parts;
            i32 tile, part = 0, group;
            if constexpr (S::Whole) {  // the order is bands of tokens, then tiles, so that a band stays in L2
                constexpr i32 kBand = 1536 / S::Tokens;
                const i32 band = local / (kBand * tiles), inside = local - band * kBand * tiles;
                const i32 width = min(kBand, groups - band * kBand);
                tile = inside / width, group = band * kBand + inside - tile * width;
            } else {
                tile = local / (groups * parts);
                const i32 rest = local - tile * groups * parts;
                part = rest / groups, group = rest - part * groups;
            }
            out = Item{e.expert, tile, e.first + group * S::Tokens, min(S::Tokens, e.count - group * S::Tokens), part,
                       tile * groups + group};
            item += gridDim.x;
            return true;
        }
        return false;
    }
};

// Returns the first byte of the token row at a place of the sorted order.
__device__ __forceinline__ const u8* token_at(const PackedArgs& args, i32 place) {
    const i64 row = args.order == nullptr || args.from_pairs ? place : args.order[place] / args.top;
    return args.x + row * args.x_pitch;
}

// Copies whole 16-byte pieces of weights to shared memory with all threads of a block.
template <int Bytes, int Threads>
__device__ __forceinline__ void copy_unit(u32 to, const u8* from, u32 thread) {
    static_assert(Bytes % 16 == 0, "alignment");
#pragma unroll
    for (int i = 0; i < (Bytes / 16 + Threads - 1) / Threads; ++i) {
        const u32 piece = i * Threads + thread;
        if ((i + 1) * Threads <= Bytes / 16 || piece < Bytes / 16) {
            portable::copy_16(to + piece * 16, from + piece * 16, true);
        }
    }
}

// Loads the B operands of eight tokens for two steps of 16 columns.
template <class F>
__device__ __forceinline__ void token_operands(u32 (&b)[4], u32 at) {
    if constexpr (F::Turned) {
        const uint4 v = load_16(at);
        b[0] = v.x, b[1] = v.y, b[2] = v.z, b[3] = v.w;
    } else {
        ptx::load_matrices(b, at);
    }
}
// Returns the offset of this lane in eight token rows of the given pitch, for the first two steps of a batch. The next
// two steps are kNextSteps further.
template <class F>
__device__ __forceinline__ u32 token_offset(u32 lane, u32 pitch) {
    return F::Turned ? lane / 4 * pitch + lane % 4 * 32 : lane % 8 * pitch + lane / 8 * 16;
}
template <class F>
constexpr u32 kNextSteps = F::Turned ? 16 : 64;

}  // namespace sparrow_packed
