// Fetching warpgroups, part two: rows that are stored as e4m3 codes and become half-precision values on the way to shared memory.
//
// Half precision holds every code exactly, and every code times a power of two from 2^-15 to 2^7: what is stored must be below 57344, which
// a normalised latent always is. The conversion takes two instructions for two values; bf16, which has no direct one, takes six.
//
// Four lanes share a row: lane q of them takes 16 of the 64 codes of every tile, so a thread knows a slot and an address for each of its rows.
// The rows of the next block are asked for as soon as the registers are free: the left half while the right one is being converted.
#pragma once

#include "sm90/sparse/fetch.cuh"

namespace sparrow_sparse {

// Two codes, the lower 16 bits of codes, in half precision.
__device__ __forceinline__ u32 widen(u32 codes) {
    u32 halves;
    asm("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %1; cvt.rn.f16x2.e4m3x2 %0, lo; }" : "=r"(halves) : "r"(codes));
    return halves;
}

__device__ __forceinline__ u32 times(u32 halves, u32 scale) {
    u32 r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(halves), "r"(scale));
    return r;
}

// A scale twice, in half precision.
__device__ __forceinline__ u32 half_scale(float scale) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %1;" : "=r"(r) : "f"(scale));
    return r;
}

// Two bf16 values in half precision.
__device__ __forceinline__ u32 halve(u32 pair) {
    return ptx::F16::pack(__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u));
}

__device__ __forceinline__ void store_16(u32 address, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

__device__ __forceinline__ uint4 load_16(const u8* p) {
    uint4 v;
    asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}

// Sixteen codes of key r, quarter q of a tile, times a scale, to their two chunks.
__device__ __forceinline__ void store_codes(u32 tile, u32 r, u32 q, uint4 codes, u32 scale) {
    store_16(tile + tile_byte(r, 2 * q), times(widen(codes.x), scale), times(widen(codes.x >> 16), scale), times(widen(codes.y), scale),
             times(widen(codes.y >> 16), scale));
    store_16(tile + tile_byte(r, 2 * q + 1), times(widen(codes.z), scale), times(widen(codes.z >> 16), scale), times(widen(codes.w), scale),
             times(widen(codes.w >> 16), scale));
}

// The same without a scale.
__device__ __forceinline__ void store_codes(u32 tile, u32 r, u32 q, uint4 codes) {
    store_16(tile + tile_byte(r, 2 * q), widen(codes.x), widen(codes.x >> 16), widen(codes.y), widen(codes.y >> 16));
    store_16(tile + tile_byte(r, 2 * q + 1), widen(codes.z), widen(codes.z >> 16), widen(codes.w), widen(codes.w >> 16));
}

// A format is what one thread holds of one row beside the codes: scales of the left tiles (0-3), and scales of the others and the rotary part.

// 656 bytes: 512 codes, 4 f32 scales of 128 codes each, 64 bf16 values of the rotary part, which stay bf16.
struct BlockFormat {
    static constexpr int kTiles = 9, kCodeTiles = 8, kBf16Tiles = 1;
    static constexpr i64 kRowBytes = 656;
    float2 left, right;
    uint4 rope[2];

    static __device__ __forceinline__ float2 load_scales(const u8* p) {
        float2 v;
        asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(p));
        return v;
    }
    __device__ __forceinline__ void load_left(const u8* row, const u8*) { left = load_scales(row + 512); }
    __device__ __forceinline__ void load_right(const u8* row, u32 q) {
        right = load_scales(row + 520);
        rope[0] = load_16(row + 528 + q * 32);
        rope[1] = load_16(row + 544 + q * 32);
    }
    __device__ __forceinline__ void clear_left() { left = make_float2(0.0f, 0.0f); }
    __device__ __forceinline__ void clear_right() {
        right = make_float2(0.0f, 0.0f);
        rope[0] = rope[1] = make_uint4(0, 0, 0, 0);
    }
    __device__ __forceinline__ void store(u32 tile, int i, u32 r, u32 q, uint4 codes) const {
        store_codes(tile, r, q, codes, half_scale(i < 2 ? left.x : i < 4 ? left.y : i < 6 ? right.x : right.y));
    }
    __device__ __forceinline__ void store_rope(u32 tile, u32 r, u32 q) const {
        store_16(tile + tile_byte(r, 2 * q), rope[0].x, rope[0].y, rope[0].z, rope[0].w);
        store_16(tile + tile_byte(r, 2 * q + 1), rope[1].x, rope[1].y, rope[1].z, rope[1].w);
    }
};

// 576 bytes: 512 codes, 64 codes of the rotary part. The pool's scale is left to the score and value scales of the launch.
struct RawFormat {
    static constexpr int kTiles = 9, kCodeTiles = 8, kBf16Tiles = 0;
    static constexpr i64 kRowBytes = 576;
    uint4 rope;

    __device__ __forceinline__ void load_left(const u8*, const u8*) {}
    __device__ __forceinline__ void load_right(const u8* row, u32 q) { rope = load_16(row + 512 + q * 16); }
    __device__ __forceinline__ void clear_left() {}
    __device__ __forceinline__ void clear_right() { rope = make_uint4(0, 0, 0, 0); }
    __device__ __forceinline__ void store(u32 tile, int, u32 r, u32 q, uint4 codes) const { store_codes(tile, r, q, codes); }
    __device__ __forceinline__ void store_rope(u32 tile, u32 r, u32 q) const { store_codes(tile, r, q, rope); }
};

// 584 bytes: 448 codes and 64 bf16 rotary values in a data row of 576, and 7 power-of-two scales and a zero in a scale row at the end of
// the page. The rotary part is part of the values, too: it becomes half precision.
struct EntryFormat {
    static constexpr int kTiles = 8, kCodeTiles = 7, kBf16Tiles = 0;
    static constexpr i64 kRowBytes = 576;
    u32 low, high;  // scale bytes of tiles 0-3 and 4-6
    u32 waiting;    // high of the block whose left half is on its way
    uint4 rope[2];

    __device__ __forceinline__ void load_left(const u8*, const u8* scales) {
        asm volatile("ld.global.v2.b32 {%0, %1}, [%2];" : "=r"(low), "=r"(waiting) : "l"(scales));
    }
    __device__ __forceinline__ void load_right(const u8* row, u32 q) {
        high = waiting;
        rope[0] = load_16(row + 448 + q * 32);
        rope[1] = load_16(row + 464 + q * 32);
    }
    __device__ __forceinline__ void clear_left() { low = waiting = 0; }
    __device__ __forceinline__ void clear_right() {
        high = 0;
        rope[0] = rope[1] = make_uint4(0, 0, 0, 0);
    }
    __device__ __forceinline__ void store(u32 tile, int i, u32 r, u32 q, uint4 codes) const {
        const u32 b = (i < 4 ? low : high) >> (i % 4 * 8) & 0xFF;
        store_codes(tile, r, q, codes, half_scale(__uint_as_float(b == 0 ? 0x00400000u : b << 23)));
    }
    __device__ __forceinline__ void store_rope(u32 tile, u32 r, u32 q) const {
        store_16(tile + tile_byte(r, 2 * q), halve(rope[0].x), halve(rope[0].y), halve(rope[0].z), halve(rope[0].w));
        store_16(tile + tile_byte(r, 2 * q + 1), halve(rope[1].x), halve(rope[1].y), halve(rope[1].z), halve(rope[1].w));
    }
};

// Rows of one e4m3 format. Thread t serves keys t / 4, t / 4 + 32.
template <class Format>
struct ConvertedRows {
    using Type = ptx::F16;
    static constexpr int Tiles = Format::kTiles;
    static constexpr int kBf16Tiles = Format::kBf16Tiles;
    static constexpr u32 kMaskWriters = 0;
    static constexpr int kStep = kFetchers / 4;  // keys served side by side
    static constexpr int kRows = kKeys / kStep;

    uint4 codes[kRows][Format::kCodeTiles];
    Format rest[kRows];
    i32 slots[kRows];  // of the block that is asked for next

    // Asks for the slots of a block.
    __device__ __forceinline__ void look(const SparseAttendArgs& args, const Walk& at, u32 t) {
        const BlockPlace place = place_of(at.unit, at.block);
#pragma unroll
        for (int k = 0; k < kRows; ++k) {
            slots[k] = listed_slot(args.streams[place.stream], at.unit.row, place.position + k * kStep + t / 4, place.length);
        }
    }

    // Bit 8k + i: key k * kStep + 8 * warp + i counts. Four lanes know each key, the first of them is taken.
    __device__ __forceinline__ u32 mask() const {
        u32 m = 0;
#pragma unroll
        for (int k = 0; k < kRows; ++k) {
            u32 x = __ballot_sync(ptx::kFullMask, slots[k] >= 0) & 0x11111111u;
            x = (x | x >> 3) & 0x03030303u;
            x = (x | x >> 6) & 0x000F000Fu;
            m |= ((x | x >> 12) & 0xFFu) << (k * 8);
        }
        return m;
    }

    // Asks for half of the rows of the block that was looked at: tiles 0-3, or the others and the rotary part.
    template <bool Left>
    __device__ __forceinline__ void ask(const SelectionView& s, u32 q) {
        constexpr int kFrom = Left ? 0 : kHalfTiles, kTo = Left ? kHalfTiles : Format::kCodeTiles;
#pragma unroll
        for (int k = 0; k < kRows; ++k) {
            const i32 slot = slots[k];
            if (slot >= 0) {
                const u8* page = page_of(s, slot);
                const u8* row = page + (slot & s.page_mask) * Format::kRowBytes;
#pragma unroll
                for (int i = kFrom; i < kTo; ++i) {
                    codes[k][i] = load_16(row + i * 64 + q * 16);
                }
                if constexpr (Left) {
                    rest[k].load_left(row, page + s.scales + (slot & s.page_mask) * 8ll);
                } else {
                    rest[k].load_right(row, q);
                }
            } else {
#pragma unroll
                for (int i = kFrom; i < kTo; ++i) {
                    codes[k][i] = make_uint4(0, 0, 0, 0);
                }
                if constexpr (Left) {
                    rest[k].clear_left();
                } else {
                    rest[k].clear_right();
                }
            }
        }
    }

    // Converts half of the rows that have arrived.
    template <bool Left>
    __device__ __forceinline__ void store(u32 base, u32 t) const {
        constexpr int kFrom = Left ? 0 : kHalfTiles, kTo = Left ? kHalfTiles : Format::kCodeTiles;
#pragma unroll
        for (int k = 0; k < kRows; ++k) {
#pragma unroll
            for (int i = kFrom; i < kTo; ++i) {
                rest[k].store(base + i * kTileBytes, i, k * kStep + t / 4, t % 4, codes[k][i]);
            }
            if constexpr (!Left) {
                rest[k].store_rope(base + Format::kCodeTiles * kTileBytes, k * kStep + t / 4, t % 4);
            }
        }
        ptx::fence_async_proxy();
    }

    static __device__ __forceinline__ void run(const SparseAttendArgs& args, Storage<Tiles>& shared, u32 t) {
        u32 done = 0, units = 0;  // blocks, and units with keys
        u32 valid = 0;            // of the block whose rows are on their way
        ConvertedRows rows;
        Walk at(args);
        if (at.more) {
            const BlockPlace place = place_of(at.unit, at.block);
            rows.look(args, at, t);
            settle(args, args.streams[place.stream], t / 4, kStep, place.length - place.position, rows.slots);
            valid = rows.mask();
            rows.template ask<true>(args.streams[place.stream], t % 4);
            rows.template ask<false>(args.streams[place.stream], t % 4);
        }
        for (bool more = at.more; more; ++done) {
            const i32 row = at.unit.row, head = at.unit.head;
            const bool first = at.block == 0;
            at.step();
            more = at.more;
            if (more) {
                rows.look(args, at, t);
            }
            const BlockPlace place = place_of(at.unit, at.block);
            const SelectionView& next = args.streams[place.stream];
            const u32 b = done & 1, parity = (done >> 1 & 1) ^ 1, base = ptx::shared_address(shared.k[b]);
            ptx::barrier_wait(ptx::shared_address(&shared.k_empty[b][0]), parity);
            if (t % 32 == 0) {
#pragma unroll
                for (int k = 0; k < kRows; ++k) {
                    reinterpret_cast<u8*>(&shared.valid[b])[(k * kStep + t / 4) / 8] = static_cast<u8>(valid >> (k * 8));
                }
            }
            rows.template store<true>(base, t);
            ptx::barrier_arrive(ptx::shared_address(&shared.k_full[b][0]));
            if (more) {
                settle(args, next, t / 4, kStep, place.length - place.position, rows.slots);
                valid = rows.mask();
                rows.template ask<true>(next, t % 4);
            }
            if (first) {  // their place may be free later than the keys'
                ptx::barrier_wait(ptx::shared_address(&shared.q_empty), (units & 1) ^ 1);
                fetch_queries<Tiles>(args, shared, row, head, t);
                ++units;
            }
            ptx::barrier_wait(ptx::shared_address(&shared.k_empty[b][1]), parity);
            rows.template store<false>(base, t);
            ptx::barrier_arrive(ptx::shared_address(&shared.k_full[b][1]));
            if (more) {
                rows.template ask<false>(next, t % 4);
            }
        }
    }
};

}  // namespace sparrow_sparse
