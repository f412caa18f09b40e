// The sources of the copy warpgroups: rows of tokens and tiles of weights.
#pragma once

#include "sm90/experts/config.h"

namespace sparrow_experts {

// The matrix from which token rows are read.
struct Source {
    const u8* rows;
    i64 pitch;  // bytes between token rows
    u32 row_bytes;
    const float* scales;  // [rows, blocks] scales of the tokens
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

// Returns the address of the first tile (block 0 of k) of an item's weights.
template <class S>
__device__ __forceinline__ const u8* weights_of(const Source& from, const Item& item) {
    return from.weights +
           (static_cast<i64>(item.expert) * from.tiles + item.tile) * from.blocks * Stored<typename S::Type>::TileBytes;
}

// Returns the row from which the token at place `place` of the sorted order is read.
template <class S>
__device__ __forceinline__ u32 row_of(const ExpertsArgs& args, i32 place) {
    return S::kStep == Step::kGateUp ? args.order[place] / args.top : place;
}

}  // namespace sparrow_experts
