// Widening of e2m1 weights to e4m3 where the scales of a block of 128 rows by 128 columns lie within 14 binades. A
// value times its scale is then, exactly, a code of e4m3 times the block's scale: e4m3 holds 0.5 to 6, the values of
// e2m1, times 2^-8 to 2^6. The products are those of e4m3 weights, and so is everything but this.
//
// A stored tile is 256 rows of 128 values, 17408 bytes: eight pieces of 32 rows of codes and four bytes for
// each row. It comes by the copy engine, up to S::Ahead tiles before it is needed. A warp widens one
// or two pieces, and lane l of it row l of each.
//
//     codes    [4, 32] parts of 16 bytes: part g of lane l has values 32g to 32g + 31 of row l, eight in a word. Of the
//              first four values, magnitudes are in the lower half of the word, three bits in each nibble, and signs in
//              bits 7, 15, 23 and 31; of the other four, in the upper half and in bits 3, 11, 19 and 27
//     scales   [32] words: byte g of word l is 8 (e + 8) where 2^e is the scale of values 32g to 32g + 31 over that of
//              the block: where in Incoming::codes the eight magnitudes are
//
// Eight values take 8 instructions: the byte permutation looks four magnitudes up at once.
#pragma once

#include "sm90/experts/source.cuh"

namespace sparrow_experts {

constexpr int kLeastExponent = -8, kExponents = 15;

// The code of e4m3 of magnitude m of e2m1 times 2^e.
__device__ __forceinline__ u32 folded_code(i32 m, i32 e) {
    if (m == 0) {
        return 0;
    }
    const i32 half = m > 1 ? m % 2 : 0, exponent = (m > 1 ? m / 2 - 1 : -1) + e;  // (1 + half / 2) 2^exponent
    return exponent >= -6 ? (exponent + 7) * 8 + half * 4 : (2 + half) << (exponent + 9) >> 1;
}

// Eight values of a word as eight codes.
__device__ __forceinline__ uint2 fold_word(u32 word, uint2 codes) {
    const u32 magnitudes = word & 0x77777777u;
    return make_uint2(__byte_perm(codes.x, codes.y, magnitudes) | (word & 0x80808080u),
                      __byte_perm(codes.x, codes.y, magnitudes >> 16) | (word << 4 & 0x80808080u));
}

// A warp's part in widening the tiles of a block's items, in order.
template <class S>
struct Folder {
    using Type = Stored<Folded>;
    static constexpr u32 kPieces = Type::Pieces / (4 * S::FoldGroups);  // of a warp
    Storage<S>& shared;
    const Source& from;
    const u32 own, lane;  // the warp's first piece
    Cursor slots;
    // Lane 0: the next piece to bring.
    Walk<S> walk;
    const u8* next = nullptr;
    i32 left = 0;  // blocks of the item
    u32 slot = 0;
    u64 policy = ptx::kEvictFirst;

    __device__ __forceinline__ Folder(Storage<S>& shared, const Source& from)
        : shared(shared), from(from), own((threadIdx.x - kThreads) / 32 * kPieces), lane(threadIdx.x % 32) {
        if (lane == 0) {
            for (int i = 0; i < S::Ahead; ++i) {
                issue();
            }
        }
    }

    __device__ __forceinline__ void issue() {
        if (left == 0) {
            Item item;
            if (!walk.next(shared, from.tiles, item)) {
                return;
            }
            next = weights_of<S>(from, item) + own * Type::PieceBytes;
            left = from.blocks;
            policy = S::MaxTokens > 64 && item.count > 64 ? ptx::kEvictNormal : ptx::kEvictFirst;
        }
        const u32 arrived = ptx::shared_address(&shared.incoming.arrived[slot][own]);
        ptx::barrier_expect(arrived, kPieces * Type::PieceBytes);
        ptx::load_bytes(ptx::shared_address(shared.incoming.tiles[slot][own]), next,
                        kPieces * Type::PieceBytes, arrived, policy);
        next += Type::TileBytes;
        --left;
        slot = slot + 1 == S::Ahead ? 0 : slot + 1;
    }

    // Widens the next tile into a stage.
    __device__ __forceinline__ void widen(u32 stage) {
        ptx::barrier_wait(ptx::shared_address(&shared.incoming.arrived[slots.stage][own]), slots.parity);
        const u32 piece = ptx::shared_address(shared.incoming.tiles[slots.stage][own]);
        const u32 codes = ptx::shared_address(shared.incoming.codes);
        const u32 first = ptx::shared_address(shared.weights[stage]) + (own * 32 + lane) * kBlockBytes;
        u32 scales[kPieces];
        bool small = false;  // codes without an exponent of their own, which are looked up
#pragma unroll
        for (u32 p = 0; p < kPieces; ++p) {
            scales[p] = load_word(piece + p * Type::PieceBytes + Type::CodeBytes + lane * 4);
            small |= __vcmpltu4(scales[p], 8 * (-5 - kLeastExponent) * 0x01010101u) != 0;
        }
        small = __any_sync(ptx::kFullMask, small);
        // Loads of several parts before their stores: a load does not pass a store to shared memory.
        constexpr u32 kParts = S::FoldedParts;
#pragma unroll
        for (u32 from = 0; from < 4 * kPieces; from += kParts) {
            uint4 words[kParts];
            uint2 magnitudes[kParts];
#pragma unroll
            for (u32 i = 0; i < kParts; ++i) {
                const u32 part = (from + i) % 4, of = piece + (from + i) / 4 * Type::PieceBytes;
                words[i] = ptx::load_vector(of + (part * 32 + lane) * 16);
            }
#pragma unroll
            for (u32 i = 0; i < kParts; ++i) {
                const u32 at = scales[(from + i) / 4] >> (8 * ((from + i) % 4)) & 255;
                magnitudes[i] = make_uint2(0x3C383000u - 0x40404000u + at * 0x01010100u,
                                           0x4C484440u - 0x40404040u + at * 0x01010101u);
                if (small) {
                    magnitudes[i] = load_codes(codes + at);
                }
            }
#pragma unroll
            for (u32 i = 0; i < kParts; ++i) {
                const u32 row = first + (from + i) / 4 * 32 * kBlockBytes, chunk = 2 * ((from + i) % 4);
                const uint2 a = fold_word(words[i].x, magnitudes[i]), b = fold_word(words[i].y, magnitudes[i]);
                const uint2 c = fold_word(words[i].z, magnitudes[i]), d = fold_word(words[i].w, magnitudes[i]);
                ptx::store_vector(row + ((chunk ^ (lane & 7)) << 4), a.x, a.y, b.x, b.y);
                ptx::store_vector(row + (((chunk + 1) ^ (lane & 7)) << 4), c.x, c.y, d.x, d.y);
            }
        }
        slots.advance(S::Ahead);
        __syncwarp();  // the warp has read its piece
        if (lane == 0) {
            issue();
        }
    }

    static __device__ __forceinline__ u32 load_word(u32 address) {
        u32 v;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
        return v;
    }
    static __device__ __forceinline__ uint2 load_codes(u32 address) {
        uint2 v;
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
        return v;
    }
};

// What the warpgroups that only widen do.
template <class S>
__device__ void fold_apart(const ExpertsArgs& args, Storage<S>& shared) {
    const Source from = source<S>(args);
    Folder<S> folder(shared, from);
    Walk<S> walk;
    Cursor ring;
    Item item;
    while (walk.next(shared, from.tiles, item)) {
        for (i32 block = 0; block < from.blocks; ++block) {
            ptx::barrier_wait(ptx::shared_address(&shared.empty[ring.stage]), ring.parity ^ 1);
            folder.widen(ring.stage);
            ptx::fence_async_proxy();
            arrive_warp(ptx::shared_address(&shared.full[ring.stage]));
            ring.advance(S::Stages);
        }
    }
}

}  // namespace sparrow_experts
