// Matrix products with packed weights: tile shapes, the ring of stages and the order of summation.
//
// Weights are stored in tiles of 256 rows; a tile has units of F::K columns, and a unit has four stripes of 64 rows.
// The codes of a stripe are in the order in which the lanes of a warpgroup hold the A operand of the tensor cores
// (decode.cuh). A lane converts its eight values of a step of 16 columns to bf16 in registers; these values are not
// written to memory.
//
// Bits: k is cut into args.parts parts of whole units; the number of parts depends only on the shape of the weight. The
// sum of a part starts at zero and adds steps of 16 columns in order; parts are added in order. In formats with scales
// of sums (decode_any.cuh), a sum is multiplied before each group and after the part. The bits of an element depend
// only on its token row, its column and the weight, not on the number of tokens.
#pragma once

#include "sm90/tile.cuh"
#include "smxx/packed/decode.cuh"
#include "smxx/packed/output.cuh"

namespace sparrow_packed {

using sparrow_tile::Cursor;

constexpr int kMaxListed = 512;  // maximum number of experts that have rows

// Shapes of a kernel in which MathGroups warpgroups multiply 64 weight rows each by up to N tokens. Sequential: one
// thread block sums all parts of k.
template <class Format, int N, int MathGroups, bool Sequential>
struct Shape {
    using F = Format;
    static constexpr int Tokens = N, Groups = MathGroups, Stripes = MathGroups;
    static constexpr bool Whole = Sequential;
    static constexpr int Threads = 128 * (Groups + 1);
    static constexpr bool Wide = N == 256;
    // Columns of k per stage of inputs: one or two swizzled tiles of 64.
    static constexpr int Columns = Wide ? 64 : 128;
    static constexpr int InputBytes = N * Columns * 2, WeightBytes = Groups * F::Bytes;
    // Stages of the ring of inputs; the ring of weights is separate.
    static constexpr int Inputs = N <= 16 ? 8 : N <= 64 || Wide ? 5 : 4;
    static constexpr int Fixed = 1024 + kMaxListed * 16 + 512 + Table<F>::TableBytes;
    static constexpr int Fit = (sparrow_tile::kSharedLimit - Fixed - Inputs * InputBytes) / WeightBytes;
    static constexpr int Weights = Fit < 12 ? Fit : 12;
    static constexpr int MathRegisters = Groups == 4 ? 104 : 208, CopyRegisters = Groups == 4 ? 64 : 88;
    static_assert(Weights >= 2, "a ring of stages");
    static_assert(InputBytes % 1024 == 0 && F::Bytes % 16 == 0, "alignment");
};

template <class S>
struct Storage {
    u8 inputs[S::Inputs][S::InputBytes];  // first member, because swizzled tiles must be aligned to 1024 bytes
    u8 weights[S::Weights][S::WeightBytes];
    alignas(128) u8 table[Table<typename S::F>::TableBytes + 16];
    ListedView list[kMaxListed];
    u64 inputs_full[S::Inputs], inputs_empty[S::Inputs], weights_full[S::Weights], weights_empty[S::Weights];
    i32 listed;
    u32 last;  // 1: the part of this thread block was the last to arrive
};

template <class S>
constexpr u32 shared_bytes() {
    static_assert(sizeof(Storage<S>) + 1024 <= sparrow_tile::kSharedLimit, "more than a Hopper block can have");
    return sizeof(Storage<S>) + 1024;
}

template <class S>
__device__ __forceinline__ Storage<S>& storage() {
    extern __shared__ u8 dynamic_shared[];
    const u32 misaligned = ptx::shared_address(dynamic_shared) % 1024;
    return *reinterpret_cast<Storage<S>*>(dynamic_shared + (misaligned ? 1024 - misaligned : 0));
}

// Tokens per band. Products of many tokens are processed band by band. The 132 SMs of an H200 then process 11 tiles by
// 12 groups at a time, or 22 tiles by 6 wide groups, which minimises the bytes read from memory.
constexpr i32 kBandTokens = 1536;

// Returns the number of items that have rows of a weight. If an item has several tiles, the last item can have fewer.
template <class S>
__device__ __forceinline__ i32 row_items(const PackedArgs& args) {
    if constexpr (S::Stripes > kStripes) {
        constexpr i32 kTiles = S::Stripes / kStripes;
        return (args.tiles + kTiles - 1) / kTiles;
    } else {
        return args.tiles * kStripes / S::Stripes;
    }
}

// Iterates over the items of a thread block: every gridDim-th item. Groups of tokens are the innermost index, so that
// thread blocks that share weights run at the same time.
template <class S>
struct Walk {
    i32 at = 0;
    i32 item = blockIdx.x;

    template <class Shared>
    __device__ __forceinline__ bool next(const Shared& shared, const PackedArgs& args, Item& out) {
        const i32 parts = S::Whole ? 1 : args.parts;
        const i32 tiles = row_items<S>(args);
        for (; at < shared.listed; ++at) {
            const ListedView e = shared.list[at];
            const i32 groups = (e.count + S::Tokens - 1) / S::Tokens;
            const i32 local = item - e.before * tiles * parts;
            if (local < groups * tiles * parts) {
                i32 tile = local / (groups * parts), rest = local - tile * groups * parts;
                i32 part = rest / groups, group = rest - part * groups;
                if constexpr (S::Whole) {  // the order is bands of kBandTokens tokens, then tiles
                    constexpr i32 kBand = kBandTokens / S::Tokens;
                    const i32 band = local / (kBand * tiles), inside = local - band * kBand * tiles;
                    const i32 width = min(kBand, groups - band * kBand);
                    tile = inside / width, group = band * kBand + inside - tile * width, part = 0;
                }
                out = Item{e.expert, tile, e.first + group * S::Tokens, min(S::Tokens, e.count - group * S::Tokens),
                           part, tile * groups + group};
                item += gridDim.x;
                return true;
            }
        }
        return false;
    }
};

}  // namespace sparrow_packed
