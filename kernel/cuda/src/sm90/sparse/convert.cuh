// Fetching warpgroups, part two: loads rows that are stored as e4m3 codes and converts them to half precision in shared
// memory.
//
// Half precision represents every code exactly, and every code times a power of two from 2^-15 to 2^7. Stored values
// must be below 57344, which always holds for a normalised latent. The conversion takes two instructions for two
// values; bf16 has no direct conversion and would take six.
//
// Four lanes share a row: lane q of the four takes 16 of the 64 codes of every tile, so a thread needs one slot and one
// address per row. Rows are loaded one block ahead. No proxy fence follows the stores here, because the fence would
// also wait for the loads in flight; the math warpgroups execute it before their products.
#pragma once

#include "sm90/sparse/fetch.cuh"

namespace sparrow_sparse {

// Converts the two e4m3 codes in the lower 16 bits of codes to two halves.
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

// Returns a scale in both halves of a word, in half precision.
__device__ __forceinline__ u32 half_scale(float scale) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %1;" : "=r"(r) : "f"(scale));
    return r;
}

// Converts two bf16 values to half precision.
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

// Returns zeros that the compiler cannot move before the branch that needs them.
__device__ __forceinline__ uint4 zeros() {
    uint4 v;
    asm volatile("mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w));
    return v;
}

// Multiplies sixteen codes of row r, quarter q of a tile, by a scale and stores them to the two 16-byte chunks of that
// quarter.
__device__ __forceinline__ void store_codes(u32 tile, u32 r, u32 q, uint4 codes, u32 scale) {
    store_16(tile + tile_byte(r, 2 * q), times(widen(codes.x), scale), times(widen(codes.x >> 16), scale),
        times(widen(codes.y), scale),
             times(widen(codes.y >> 16), scale));
    store_16(tile + tile_byte(r, 2 * q + 1), times(widen(codes.z), scale), times(widen(codes.z >> 16), scale),
        times(widen(codes.w), scale),
             times(widen(codes.w >> 16), scale));
}

// Stores sixteen codes of row r, quarter q of a tile, without a scale, to the two 16-byte chunks of that quarter.
__device__ __forceinline__ void store_codes(u32 tile, u32 r, u32 q, uint4 codes) {
    store_16(tile + tile_byte(r, 2 * q), widen(codes.x), widen(codes.x >> 16), widen(codes.y), widen(codes.y >> 16));
    store_16(tile + tile_byte(r, 2 * q + 1), widen(codes.z), widen(codes.z >> 16), widen(codes.w),
        widen(codes.w >> 16));
}

// A format struct has the values of a row that one thread holds in addition to the codes: the scales of the left tiles
// (0-3), and the scales of the other tiles and the rotary part. kApart selects the faster of two load orders
// (ConvertedRows::run). With kMixed the rows of the two streams may have different formats, and `scales` of a
// SelectionView is the number of bytes of a row.

// A row of 656 bytes: 512 codes, 4 f32 scales of 128 codes each, and 64 bf16 values of the rotary part, which stay
// bf16.
struct BlockFormat {
    static constexpr int kTiles = 9, kCodeTiles = 8, kBf16Tiles = 1;
    static constexpr bool kTwoStreams = false;
    static constexpr bool kApart = true;
    static constexpr bool kMixed = false;
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
        row += q * 32;
        rope[0] = load_16(row + 528);
        rope[1] = load_16(row + 544);
    }
    __device__ __forceinline__ void clear_left() { left = make_float2(0.0f, 0.0f); }
    __device__ __forceinline__ void clear_right() {
        right = make_float2(0.0f, 0.0f);
        rope[0] = zeros();
        rope[1] = zeros();
    }
    __device__ __forceinline__ void store(u32 tile, int i, u32 r, u32 q, uint4 codes) const {
        store_codes(tile, r, q, codes, half_scale(i < 2 ? left.x : i < 4 ? left.y : i < 6 ? right.x : right.y));
    }
    __device__ __forceinline__ void store_rope(u32 tile, u32 r, u32 q) const {
        store_16(tile + tile_byte(r, 2 * q), rope[0].x, rope[0].y, rope[0].z, rope[0].w);
        store_16(tile + tile_byte(r, 2 * q + 1), rope[1].x, rope[1].y, rope[1].z, rope[1].w);
    }
};

// A row of 576 bytes: 512 codes and 64 codes of the rotary part. The scale of the pool is a factor of args.score_scale
// and args.value_scale.
struct RawFormat {
    static constexpr int kTiles = 9, kCodeTiles = 8, kBf16Tiles = 0;
    static constexpr bool kTwoStreams = false;
    static constexpr bool kApart = false;
    static constexpr bool kMixed = false;
    static constexpr i64 kRowBytes = 576;
    uint4 rope;

    __device__ __forceinline__ void load_left(const u8*, const u8*) {}
    __device__ __forceinline__ void load_right(const u8* row, u32 q) { rope = load_16(row + 512 + q * 16); }
    __device__ __forceinline__ void clear_left() {}
    __device__ __forceinline__ void clear_right() { rope = zeros(); }
    __device__ __forceinline__ void store(u32 tile, int, u32 r, u32 q,
        uint4 codes) const { store_codes(tile, r, q, codes); }
    __device__ __forceinline__ void store_rope(u32 tile, u32 r, u32 q) const { store_codes(tile, r, q, rope); }
};

// A row of 584 bytes: 448 codes and 64 bf16 rotary values in a data row of 576 bytes, and 7 power-of-two scales and a
// zero in a scale row at the end of the page. The rotary part is also part of the values, so it is converted to half
// precision.
struct EntryFormat {
    static constexpr int kTiles = 8, kCodeTiles = 7, kBf16Tiles = 0;
    static constexpr bool kTwoStreams = true;
    static constexpr bool kApart = true;
    static constexpr bool kMixed = false;
    static constexpr i64 kRowBytes = 576;
    u32 low, high;  // scale bytes of tiles 0-3 and of tiles 4-6
    u32 waiting;    // scale bytes of tiles 4-6 of the block whose left half (tiles 0-3) is being loaded
    uint4 rope[2];

    __device__ __forceinline__ void load_left(const u8*, const u8* scales) {
        asm volatile("ld.global.v2.b32 {%0, %1}, [%2];" : "=r"(low), "=r"(waiting) : "l"(scales));
    }
    __device__ __forceinline__ void load_right(const u8* row, u32 q) {
        high = waiting;
        row += q * 32;
        rope[0] = load_16(row + 448);
        rope[1] = load_16(row + 464);
    }
    __device__ __forceinline__ void clear_left() { low = waiting = 0; }
    __device__ __forceinline__ void clear_right() {
        high = 0;
        rope[0] = zeros();
        rope[1] = zeros();
    }
    __device__ __forceinline__ void store(u32 tile, int i, u32 r, u32 q, uint4 codes) const {
        const u32 b = (i < 4 ? low : high) >> (i % 4 * 8) & 0xFF;
        store_codes(tile, r, q, codes, half_scale(__uint_as_float(b == 0 ? 0x00400000u : b << 23)));
    }
    __device__ __forceinline__ void store_rope(u32 tile, u32 r, u32 q) const {
        store_16(tile + tile_byte(r, 2 * q), halve(rope[0].x), halve(rope[0].y), halve(rope[0].z), halve(rope[0].w));
        store_16(tile + tile_byte(r, 2 * q + 1), halve(rope[1].x), halve(rope[1].y), halve(rope[1].z),
            halve(rope[1].w));
    }
};

// Rows of one e4m3 format. Of Fetchers threads, thread t has row t / 4 of a block and every kStep-th row after it.
template <class Format, int Fetchers = kFetchers>
struct ConvertedRows {
    using Type = ptx::F16;
    static constexpr int Tiles = Format::kTiles;
    static constexpr int kBf16Tiles = Format::kBf16Tiles;
    static constexpr int kFetchers = Fetchers;
    static constexpr int kStep = kFetchers / 4;  // rows that the threads convert at the same time
    static constexpr int kRows = kKeys / kStep;

    using Blocks = Ahead<Tiles, Format::kRowBytes, Format::kTwoStreams>;
    using Block = typename Blocks::Block;
    static constexpr bool kQuarters = Format::kApart;
    static constexpr i64 kRowBytes = Format::kRowBytes;
    static constexpr bool kTwoStreams = Format::kTwoStreams;
    static constexpr bool kMixed = Format::kMixed;
    using Held = Format;

    // Says whether the score group, and not the fetch group, loads the queries after the first.
    static constexpr bool asks_queries() { return false; }

    uint4 codes[kRows][Format::kCodeTiles];
    Format rest[kRows];

    // Initialises registers that may be read before rows are loaded into them.
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int k = 0; k < kRows; ++k) {
#pragma unroll
            for (int i = 0; i < Format::kCodeTiles; ++i) {
                codes[k][i] = zeros();
            }
        }
    }

    // Returns zero, but only after the last loads of the left or right half of the rows have arrived.
    template <bool Left>
    __device__ __forceinline__ u32 arrived(const SparseAttendArgs& args) const {
        return codes[kRows - 1][Left ? kHalfTiles - 1 : Format::kCodeTiles - 1].w & static_cast<u32>(args.rows >> 31);
    }

    // Loads half of row k of a block: tiles 0-3 (Left), or the other tiles and the rotary part. `after` is zero; it
    // makes the loads depend on the value that the caller computed it from.
    template <bool Left, class Coming>
    __device__ __forceinline__ void ask_row(const SparseAttendArgs& args, const Coming& c, int k, u32 t,
        u32 after = 0) {
        constexpr int kFrom = Left ? 0 : kHalfTiles, kTo = Left ? kHalfTiles : Format::kCodeTiles;
        const i32 slot = __shfl_sync(ptx::kFullMask, c.slot, k * 8 + t % 32 / 4);
        if (slot >= 0) {
            const SelectionView& s = c.stream(args);
            const u8* page = page_of(s, slot);
            const u8* row = page + (slot & s.page_mask) * (Format::kMixed ? s.scales : Format::kRowBytes) + after;
            asm volatile("" : "+l"(row));  // one address register, so that the loads use immediate offsets
            if constexpr (Format::kMixed) {
                rest[k].template load<Left>(row, t % 4, s.scales == Format::kSecondBytes, codes[k]);
            } else {
#pragma unroll
                for (int i = kFrom; i < kTo; ++i) {
                    codes[k][i] = load_16(row + t % 4 * 16 + i * 64);
                }
                if constexpr (Left) {
                    rest[k].load_left(row, page + s.scales + (slot & s.page_mask) * 8ll);
                } else {
                    rest[k].load_right(row, t % 4);
                }
            }
        } else {
#pragma unroll
            for (int i = kFrom; i < kTo; ++i) {
                codes[k][i] = zeros();
            }
            if constexpr (Left) {
                rest[k].clear_left();
            } else {
                rest[k].clear_right();
            }
        }
    }

    template <bool Left, class Coming>
    __device__ __forceinline__ void ask(const SparseAttendArgs& args, const Coming& c, u32 t, u32 after = 0) {
#pragma unroll
        for (int k = 0; k < kRows; ++k) {
            ask_row<Left>(args, c, k, t, after);
        }
    }

    // Converts half of row k, whose loads have arrived, and stores it. If `rotary` is set, also stores the rotary part.
    template <bool Left>
    __device__ __forceinline__ void store_row(u32 base, int k, u32 t, bool rotary = true) const {
        constexpr int kFrom = Left ? 0 : kHalfTiles, kTo = Left ? kHalfTiles : Format::kCodeTiles;
#pragma unroll
        for (int i = kFrom; i < kTo; ++i) {
            rest[k].store(base + i * kTileBytes, i, k * kStep + t / 4, t % 4, codes[k][i]);
        }
        if (!Left && rotary) {
            rest[k].store_rope(base + Format::kCodeTiles * kTileBytes, k * kStep + t / 4, t % 4);
        }
    }

    // Converts half of the rows of a block. Unless kApart is set, also loads this half of the next block, row by row.
    template <bool Left>
    __device__ __forceinline__ void turn(const SparseAttendArgs& args, const Block& c, u32 base, u32 t) {
#pragma unroll
        for (int k = 0; k < kRows; ++k) {
            store_row<Left>(base, k, t);
            if (!Format::kApart && k + 1 < kRows) {
                ask_row<Left>(args, c, k, t);
#pragma unroll
                for (int i = Left ? 0 : kHalfTiles; i < (Left ? kHalfTiles : Format::kCodeTiles); ++i) {
                    uint4& w = codes[k + 1][i];
                    // The empty assembly keeps the compiler from converting earlier, because there are not enough
                    // registers for both the codes and the converted values.
                    asm volatile("" : "+r"(w.x), "+r"(w.y), "+r"(w.z), "+r"(w.w));
                }
            }
        }
    }

    // Converts the right half of the rows, each as soon as its quarter of the previous keys is free. The rotary tile
    // held the weights, which the products of all four quarters read, so it is free last.
    __device__ __forceinline__ void store_quarters(Storage<Tiles>& shared, u32 base, u32 b, u32 parity, u32 t) const {
        const u32 quarter = t / 64;  // quarter of the thread's first row; the second row is two quarters later
        ptx::barrier_wait(ptx::shared_address(&shared.quarter_empty[b][quarter]), parity);
        store_row<false>(base, 0, t, false);
        ptx::barrier_wait(ptx::shared_address(quarter == 0 ? &shared.quarter_empty[b][2] : &shared.k_empty[b][1]),
            parity);
        store_row<false>(base, 1, t, false);
        ptx::barrier_wait(ptx::shared_address(&shared.k_empty[b][1]), parity);
#pragma unroll
        for (int k = 0; k < kRows; ++k) {
            rest[k].store_rope(base + Format::kCodeTiles * kTileBytes, k * kStep + t / 4, t % 4);
        }
    }

    // The main loop of a fetching thread. For rows with scales, the compiler tracks all loads together, so a wait for
    // one half waits for every earlier load. For these rows (kApart) a half is loaded only after the other half has
    // arrived, and its latency overlaps the conversion. For other rows, a half is loaded as soon as its registers are
    // free.
    static __device__ __forceinline__ void run(const SparseAttendArgs& args, Storage<Tiles>& shared, u32 t) {
        constexpr bool kApart = Format::kApart;
        u32 done = 0, queries = 0;  // key blocks, and queries of 64 heads, that this thread has processed
        ConvertedRows rows;
        Blocks ahead(args);
        Block now = ahead.next(args, t);
        now.settle(args);
        // Page tables were written before the previous kernel, but that kernel may write the last row of a sequence.
        if constexpr (kEvery) {
            ptx::wait_for_previous_kernel();
        }
        rows.template ask<true>(args, now, t);
        if constexpr (!kApart) {
            rows.template ask<false>(args, now, t);
        }
        u32 valid = now.mask();
        Block next = ahead.next(args, t), third;
        if constexpr (!kApart) {
            third = ahead.next(args, t);
        }
        next.settle(args);
        for (; now.there(); ++done) {
            // Addresses are computed again for every block, because there are no registers to keep them.
            asm volatile("" : "+r"(t));
            const u32 b = done & 1, parity = (done >> 1 & 1) ^ 1, base = ptx::shared_address(shared.k[b]);
            if constexpr (kApart) {
                rows.template ask<false>(args, now, t, rows.template arrived<true>(args));
                third = ahead.next(args, t);  // the list entries of the block after next arrive with these rows
            }
            ptx::barrier_wait(ptx::shared_address(&shared.k_empty[b][0]), parity);
            if (t % 32 == 0) {
                write_mask(shared.valid[b], t / 32, valid);
            }
            rows.template turn<true>(args, next, base, t);
            ptx::barrier_arrive(ptx::shared_address(&shared.k_full[b][0]));
            valid = next.mask();
            if constexpr (!kApart) {
                rows.template ask_row<true>(args, next, kRows - 1, t);
            }
            const bool others = now.fresh() && queries++ > 0;  // Queries::take loads the first queries
            if (others) {  // the memory of queries may become free later than the memory of keys
                const Unit u = unit_at(args, Share(args), now.unit());
                ptx::barrier_wait(ptx::shared_address(&shared.q_empty), queries & 1);
                Queries<ConvertedRows>::ask(args, shared, u.row, u.head, t);
            }
            if constexpr (kApart) {
                rows.template ask<true>(args, next, t, rows.template arrived<false>(args));
            }
            if constexpr (kQuarters) {
                rows.store_quarters(shared, base, b, parity, t);
            } else {
                ptx::barrier_wait(ptx::shared_address(&shared.k_empty[b][1]), parity);
                rows.template turn<false>(args, next, base, t);
            }
            ptx::barrier_arrive(ptx::shared_address(&shared.k_full[b][1]));
            if (others) {
                Queries<ConvertedRows>::convert(shared, t);
            }
            third.settle(args);
            now = next;
            next = third;
            if constexpr (!kApart) {
                // The result is loaded directly into the registers that keep it, because a move would wait for the
                // loads in flight.
                third = ahead.next(args, t);
                rows.template ask_row<false>(args, now, kRows - 1, t);
            }
        }
    }
};

}  // namespace sparrow_sparse
