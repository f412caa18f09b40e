// Fetching warpgroups, part two: rows that are stored as e4m3 codes and become bf16 on the way to shared memory.
//
// Four lanes share a row: lane q of them takes 16 of the 64 codes of every tile, so a thread knows one slot and one address. All loads of a
// block are in flight before the wait for its buffer. A code times a power-of-two scale is exact in bf16; the product with any other scale
// is rounded once.
#pragma once

#include "sm90/sparse/fetch.cuh"

namespace sparrow_sparse {

// Two codes, the lower 16 bits of codes, times scale, as bf16.
__device__ __forceinline__ u32 widen(u32 codes, float scale) {
    u32 halves, pair;
    asm("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %1; cvt.rn.f16x2.e4m3x2 %0, lo; }" : "=r"(halves) : "r"(codes));
    float a, b;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }" : "=f"(a), "=f"(b) : "r"(halves));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b * scale), "f"(a * scale));
    return pair;
}

__device__ __forceinline__ void store_16(u32 address, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

__device__ __forceinline__ uint4 load_16(const u8* p) {
    uint4 v;
    asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}

// Sixteen codes of key r, quarter q of a tile, to their two chunks.
__device__ __forceinline__ void store_codes(u32 tile, u32 r, u32 q, uint4 codes, float scale) {
    store_16(tile + tile_byte(r, 2 * q), widen(codes.x, scale), widen(codes.x >> 16, scale), widen(codes.y, scale), widen(codes.y >> 16, scale));
    store_16(tile + tile_byte(r, 2 * q + 1), widen(codes.z, scale), widen(codes.z >> 16, scale), widen(codes.w, scale), widen(codes.w >> 16, scale));
}

// 656 bytes: 512 codes, 4 f32 scales of 128 codes each, 64 bf16 values of the rotary part.
struct BlockFormat {
    static constexpr int kTiles = 9, kCodeTiles = 8;
    uint4 scales;
    uint4 rope[2];

    static __device__ __forceinline__ const u8* row(const SelectionView& s, i32 slot) { return page_of(s, slot) + (slot & s.page_mask) * 656ll; }
    __device__ __forceinline__ void load(const SelectionView&, i32, const u8* row, u32 q) {
        scales = load_16(row + 512);
        rope[0] = load_16(row + 528 + q * 32);
        rope[1] = load_16(row + 544 + q * 32);
    }
    __device__ __forceinline__ void clear() { scales = rope[0] = rope[1] = make_uint4(0, 0, 0, 0); }
    __device__ __forceinline__ float scale(int tile) const {
        const u32 bits = tile / 2 == 0 ? scales.x : tile / 2 == 1 ? scales.y : tile / 2 == 2 ? scales.z : scales.w;
        return __uint_as_float(bits);
    }
    __device__ __forceinline__ void store_rope(u32 tile, u32 r, u32 q) const {
        store_16(tile + tile_byte(r, 2 * q), rope[0].x, rope[0].y, rope[0].z, rope[0].w);
        store_16(tile + tile_byte(r, 2 * q + 1), rope[1].x, rope[1].y, rope[1].z, rope[1].w);
    }
};

// 576 bytes: 512 codes, 64 codes of the rotary part. The pool's scale is left to the score and value scales of the launch.
struct RawFormat {
    static constexpr int kTiles = 9, kCodeTiles = 8;
    uint4 rope;

    static __device__ __forceinline__ const u8* row(const SelectionView& s, i32 slot) { return page_of(s, slot) + (slot & s.page_mask) * 576ll; }
    __device__ __forceinline__ void load(const SelectionView&, i32, const u8* row, u32 q) { rope = load_16(row + 512 + q * 16); }
    __device__ __forceinline__ void clear() { rope = make_uint4(0, 0, 0, 0); }
    __device__ __forceinline__ float scale(int) const { return 1.0f; }
    __device__ __forceinline__ void store_rope(u32 tile, u32 r, u32 q) const { store_codes(tile, r, q, rope, 1.0f); }
};

// 584 bytes: 448 codes and 64 bf16 rotary values in a data row of 576, and 7 power-of-two scales and a zero in a scale row at the end of
// the page.
struct EntryFormat {
    static constexpr int kTiles = 8, kCodeTiles = 7;
    u32 low, high;  // scale bytes of tiles 0-3 and 4-7
    uint4 rope[2];

    static __device__ __forceinline__ const u8* row(const SelectionView& s, i32 slot) { return page_of(s, slot) + (slot & s.page_mask) * 576ll; }
    __device__ __forceinline__ void load(const SelectionView& s, i32 slot, const u8* row, u32 q) {
        const u8* scales = page_of(s, slot) + s.scales + (slot & s.page_mask) * 8ll;
        asm volatile("ld.global.v2.b32 {%0, %1}, [%2];" : "=r"(low), "=r"(high) : "l"(scales));
        rope[0] = load_16(row + 448 + q * 32);
        rope[1] = load_16(row + 464 + q * 32);
    }
    __device__ __forceinline__ void clear() {
        low = high = 0;
        rope[0] = rope[1] = make_uint4(0, 0, 0, 0);
    }
    __device__ __forceinline__ float scale(int tile) const {
        const u32 b = (tile < 4 ? low : high) >> (tile % 4 * 8) & 0xFF;
        return __uint_as_float(b == 0 ? 0x00400000u : b << 23);
    }
    __device__ __forceinline__ void store_rope(u32 tile, u32 r, u32 q) const {
        store_16(tile + tile_byte(r, 2 * q), rope[0].x, rope[0].y, rope[0].z, rope[0].w);
        store_16(tile + tile_byte(r, 2 * q + 1), rope[1].x, rope[1].y, rope[1].z, rope[1].w);
    }
};

// Rows of one e4m3 format. Thread t serves keys t / 4, t / 4 + Fetchers / 4 and so on.
template <class Format, class R>
struct ConvertedRows {
    static constexpr u32 kMaskWriters = 0;
    static constexpr bool kHeldInRegisters = true;
    static constexpr int kTiles = Format::kTiles;
    static constexpr int kStep = R::Fetchers / 4;  // keys served side by side
    static constexpr int kRows = kKeys / kStep;

    uint4 codes[kRows][Format::kCodeTiles];
    Format rest[kRows];
    u32 mask;          // of the warp's keys, a byte for each eight of them
    i32 ahead[kRows];  // slots of the next block

    __device__ __forceinline__ void look_ahead(const SparseAttendArgs& args, const Unit& unit, i32 block, u32 t) {
        const BlockPlace place = place_of(unit, block);
#pragma unroll
        for (int k = 0; k < kRows; ++k) {
            ahead[k] = slot_at(args, place.stream, unit.row, place.position + k * kStep + t / 4, place.length);
        }
    }

    // Asks for the rows, and for the slots of the next block.
    __device__ __forceinline__ void prepare(const SparseAttendArgs& args, const Unit& unit, i32 block, u32 t) {
        if (block == 0) {
            look_ahead(args, unit, 0, t);
        }
        const SelectionView& s = args.streams[place_of(unit, block).stream];
        const u32 q = t % 4;
        mask = 0;
#pragma unroll
        for (int k = 0; k < kRows; ++k) {
            const i32 slot = ahead[k];
            if (slot >= 0) {
                const u8* row = Format::row(s, slot);
#pragma unroll
                for (int i = 0; i < Format::kCodeTiles; ++i) {
                    codes[k][i] = load_16(row + i * 64 + q * 16);
                }
                rest[k].load(s, slot, row, q);
            } else {
#pragma unroll
                for (int i = 0; i < Format::kCodeTiles; ++i) {
                    codes[k][i] = make_uint4(0, 0, 0, 0);
                }
                rest[k].clear();
            }
            const i32 key_slot = __shfl_sync(ptx::kFullMask, slot, t % 8 * 4);
            mask |= (__ballot_sync(ptx::kFullMask, key_slot >= 0) & 0xFF) << (k * 8);
        }
        if (block + 1 < unit.blocks) {
            look_ahead(args, unit, block + 1, t);
        }
    }

    __device__ __forceinline__ void fill(const SparseAttendArgs&, Storage<kTiles>& shared, u32 b, u32 parity, u32 t) {
        const u32 base = ptx::shared_address(shared.k[b]), r = t / 4, q = t % 4;
        ptx::barrier_wait(ptx::shared_address(&shared.k_empty[b][0]), parity);
        if (t % 32 == 0) {
#pragma unroll
            for (int k = 0; k < kRows; ++k) {
                reinterpret_cast<u8*>(&shared.valid[b])[(k * kStep + r) / 8] = static_cast<u8>(mask >> (k * 8));
            }
        }
#pragma unroll
        for (int i = 0; i < kHalfTiles; ++i) {
#pragma unroll
            for (int k = 0; k < kRows; ++k) {
                store_codes(base + i * kTileBytes, k * kStep + r, q, codes[k][i], rest[k].scale(i));
            }
        }
        ptx::fence_async_proxy();
        ptx::barrier_arrive(ptx::shared_address(&shared.k_full[b][0]));
        ptx::barrier_wait(ptx::shared_address(&shared.k_empty[b][1]), parity);
#pragma unroll
        for (int i = kHalfTiles; i < Format::kCodeTiles; ++i) {
#pragma unroll
            for (int k = 0; k < kRows; ++k) {
                store_codes(base + i * kTileBytes, k * kStep + r, q, codes[k][i], rest[k].scale(i));
            }
        }
#pragma unroll
        for (int k = 0; k < kRows; ++k) {
            rest[k].store_rope(base + Format::kCodeTiles * kTileBytes, k * kStep + r, q);
        }
        ptx::fence_async_proxy();
        ptx::barrier_arrive(ptx::shared_address(&shared.k_full[b][1]));
    }
};

}  // namespace sparrow_sparse
