// The copy warpgroup for e2m1 weights. The copy engine loads stored tiles of 8704 bytes, up to S::Ahead tiles ahead.
// The warpgroup widens them to bf16 into the stages that the math warpgroups read. Tokens are copied as in feed.cuh.
//
// A stored tile is 256 rows of 64 values: 8192 bytes of codes and 512 bytes of scales. Thread t widens rows t and 128
// + t.
//
//     codes    [4, 128] pieces of 16 bytes: piece j of thread t has values 32 (j % 2) to 32 (j % 2) + 31 of row
//              128 (j / 2) + t, eight in a word: value 2i of a word in bits 4i to 4i+3, value 2i+1 16 bits above it
//     scales   [128] words: two bytes for row t and two for row 128 + t; a scale is 2^(byte - 127), and byte 255 is
//              NaN
//
// e2m1 times such a scale is exact in bf16 (except below 2^-133), so the matrix products equal those of bf16 weights.
#pragma once

#include "sm90/experts/feed.cuh"

namespace sparrow_experts {

// Returns a power of two as a pair of bf16 values.
__device__ __forceinline__ u32 power_pair(u32 byte) {
    const u32 bits = byte == 0 ? 0x0040u : byte == 255 ? 0x7FC0u : byte << 7;
    return bits | bits << 16;
}

__device__ __forceinline__ u32 multiply_pair(u32 a, u32 b) {
    u32 r;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

// Widens values 2i and 2i+1 of a word of codes. The sign moves to bit 15, and the other bits to the lowest exponent
// bits and the highest fraction bits of bf16. As bf16 this is the value times 2^-126, including zero and one half.
template <int I>
__device__ __forceinline__ u32 widen_pair(u32 codes, u32 scale) {
    constexpr u32 kUp = 0x7E807E80u;  // 2^126 in both halves, as bf16
    const u32 magnitude = I < 2 ? codes << (6 - 4 * I) : codes >> (4 * I - 6);
    const u32 bits = (magnitude & 0x01C001C0u) | (codes << (12 - 4 * I) & 0x80008000u);
    return multiply_pair(multiply_pair(bits, kUp), scale);
}

// Loads stored tiles into shared memory in the order in which items need them. One thread runs it.
template <class S>
struct Ahead {
    Walk<S> walk;
    const u8* next = nullptr;
    i32 left = 0;  // blocks of k of the current item that are left
    u32 slot = 0;

    __device__ __forceinline__ void issue(Storage<S>& shared, const Source& from) {
        if (left == 0) {
            Item item;
            if (!walk.next(shared, from.tiles, item)) {
                return;
            }
            next = weights_of<S>(from, item);
            left = from.blocks;
        }
        constexpr u32 kBytes = Stored<typename S::Type>::TileBytes;
        const u32 arrived = ptx::shared_address(&shared.incoming.arrived[slot]);
        ptx::barrier_expect(arrived, kBytes);
        ptx::load_bytes(ptx::shared_address(shared.incoming.tiles[slot]), next, kBytes, arrived, ptx::kEvictFirst);
        next += kBytes;
        --left;
        slot = slot + 1 == S::Ahead ? 0 : slot + 1;
    }
};

// Widens eight values from each of the four words of a piece, and stores them as 16-byte pieces of a row of a stage.
__device__ __forceinline__ void widen_piece(uint4 codes, u32 scale, u32 row, u32 piece, u32 stage) {
    const u32 words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
    for (u32 w = 0; w < 4; ++w) {
        ptx::store_vector(stage + row * kBlockBytes + (((piece + w) ^ (row & 7)) << 4), widen_pair<0>(words[w], scale),
                          widen_pair<1>(words[w], scale), widen_pair<2>(words[w], scale),
                          widen_pair<3>(words[w], scale));
    }
}

template <class S>
__device__ void feed_widened(const ExpertsArgs& args, Storage<S>& shared) {
    const Source from = source<S>(args);
    const u32 t = threadIdx.x % 128;
    Walk<S> walk;
    Cursor ring, tiles;
    Handover<S> handover{shared};
    Ahead<S> ahead;
    Item item;
    if (t == 0) {
        for (int i = 0; i < S::Ahead; ++i) {
            ahead.issue(shared, from);
        }
    }
    if constexpr (S::kStep == Step::kDown) {
        ptx::wait_for_previous_kernel();  // the list of experts and the weights were written before the previous kernel
    }
    while (walk.next(shared, from.tiles, item)) {
        const Tokens<S> tokens(args, item, t);
        for (i32 block = 0; block < from.blocks; ++block) {
            ptx::barrier_wait(ptx::shared_address(&shared.empty[ring.stage]), ring.parity ^ 1);
            tokens.copy(from, ptx::shared_address(shared.inputs[ring.stage]), block);
            ptx::barrier_wait(ptx::shared_address(&shared.incoming.arrived[tiles.stage]), tiles.parity);
            const u32 tile = ptx::shared_address(shared.incoming.tiles[tiles.stage]);
            const u32 stage = ptx::shared_address(shared.weights[ring.stage]);
            u32 scales;
            asm volatile("ld.shared.u32 %0, [%1];"
                         : "=r"(scales)
                         : "r"(tile + Stored<typename S::Type>::CodeBytes + 4 * t)
                         : "memory");
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
                const uint4 low = ptx::load_vector(tile + (half * 256 + t) * 16),
                            high = ptx::load_vector(tile + (half * 256 + 128 + t) * 16);
                widen_piece(low, power_pair(scales >> (16 * half) & 255), 128 * half + t, 0, stage);
                widen_piece(high, power_pair(scales >> (16 * half + 8) & 255), 128 * half + t, 4, stage);
            }
            tiles.advance(S::Ahead);
            asm volatile("bar.sync 4, 128;" ::: "memory");  // all threads have read the stored tile
            if (t == 0) {
                ahead.issue(shared, from);
            }
            handover.issued(ring.stage);
            ring.advance(S::Stages);
        }
    }
    handover.template finish<0>();
}

}  // namespace sparrow_experts
