// Fetching warpgroups, part one: queries, and rows that are stored as bf16 and only have to be copied.
//
// Eight lanes copy 128 bytes of a row at a time, chunk by chunk to where the swizzle wants them, so that reads are
// whole lines and writes meet no bank twice. Rows that do not count are filled with zeros and never read: what they
// hold cannot leak, not even as 0 * NaN.
#pragma once

#include "ptx/copy.cuh"
#include "ptx/wgmma_half.cuh"
#include "sm90/sparse/ahead.cuh"

namespace sparrow_sparse {

// Queries of 64 heads of a row on their way to shared memory; heads beyond the last are zeros. A thread copies chunk
// t % 8 of every eighth row of every tile. Where the tiles of keys are of another type than bf16, it then converts
// what it has copied, in three steps, so that the first tiles are converted while the others are still coming. Rows
// says what type, and how many of the last tiles stay bf16.
template <class Rows>
struct Queries {
    static constexpr int Tiles = Rows::Tiles;
    static constexpr bool kConverts = Rows::kBf16Tiles < Tiles;
    static constexpr int kSteps = kConverts ? 3 : 1;

    static constexpr int step_begin(int i) { return (Tiles * i + kSteps - 1) / kSteps; }

    template <class Shared>
    static __device__ __forceinline__ void ask(const SparseAttendArgs& args, Shared& shared, i32 row, i32 head, u32 t) {
        const u32 chunk = t % 8, base = ptx::shared_address(shared.q);
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
#pragma unroll 1
            for (u32 r = t / 8; r < kHeads; r += Rows::kFetchers / 8) {
                const bool valid = head + static_cast<i32>(r) < args.heads;
                const u16* src = args.q + row * args.q_stride;
                if (valid) {
                    src += static_cast<i64>(head + r) * (Tiles * kTileColumns) + chunk * 8;
                }
                const u32 dst = base + tile_byte(r, chunk);
#pragma unroll
                for (int tile = step_begin(step); tile < step_begin(step + 1); ++tile) {
                    ptx::copy_16(dst + tile * kTileBytes, src + tile * kTileColumns, valid);
                }
            }
            if constexpr (kConverts) {
                ptx::copies_commit();
            }
        }
        if constexpr (!kConverts) {
            ptx::copies_arrive(ptx::shared_address(&shared.q_full));
        }
    }

    // Eight bf16 values. Those beyond half precision become its largest.
    static __device__ __forceinline__ void to_type(u32 (&w)[4]) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            w[k] = Rows::Type::pack(__uint_as_float(w[k] << 16), __uint_as_float(w[k] & 0xFFFF0000u));
        }
    }

    template <int Step>
    static __device__ __forceinline__ void convert_step(u32 base) {
        ptx::copies_wait<kSteps - 1 - Step>();
#pragma unroll 1
        for (int tile = step_begin(Step); tile < min(step_begin(Step + 1), Tiles - Rows::kBf16Tiles); ++tile) {
            u32 w[kHeads * 8 / Rows::kFetchers][4];
#pragma unroll
            for (int i = 0; i < kHeads * 8 / Rows::kFetchers; ++i) {
                const u32 at = base + tile * kTileBytes + i * (Rows::kFetchers / 8) * 128;
                asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                    : "=r"(w[i][0]), "=r"(w[i][1]), "=r"(w[i][2]), "=r"(w[i][3]) : "r"(at));
            }
#pragma unroll
            for (int i = 0; i < kHeads * 8 / Rows::kFetchers; ++i) {
                const u32 at = base + tile * kTileBytes + i * (Rows::kFetchers / 8) * 128;
                to_type(w[i]);
                asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                    ::"r"(at), "r"(w[i][0]), "r"(w[i][1]), "r"(w[i][2]), "r"(w[i][3]) : "memory");
            }
        }
    }

    template <class Shared>
    static __device__ __forceinline__ void convert(Shared& shared, u32 t) {
        const u32 base = ptx::shared_address(shared.q) + tile_byte(t / 8, t % 8);
        convert_step<0>(base);
        convert_step<1>(base);
        convert_step<2>(base);
        ptx::fence_async_proxy();
        ptx::barrier_arrive(ptx::shared_address(&shared.q_full));
    }

    // The queries of the first unit with keys, by kTakers threads that have nothing else to do until its keys are
    // there: they are on their way beside lengths, lists and rows, which come one after the other. Thread t takes chunk
    // t % 8 of every row it has.
    static constexpr u32 kTakers = 256;

    static __device__ __forceinline__ void take_first(const SparseAttendArgs& args, Storage<Tiles>& shared, u32 t) {
        const Share share(args);
        if (share.first >= share.end) {
            return;
        }
        // most first units have keys
        const i32 head = head_of(args, share.first), bytes = min(args.heads - head, kHeads) * Tiles * 128;
        const u8* guess = reinterpret_cast<const u8*>(args.q + row_of(args, share.first) * args.q_stride) +
            static_cast<i64>(head) * (Tiles * 128);
        for (i32 at = static_cast<i32>(t) * 128; at < bytes; at += kTakers * 128) {
            ptx::prefetch_line(guess + at);
        }
        u32 u = share.first;
        Unit unit = unit_at(args, share, u);
        while (unit.blocks == 0) {
            u += share.step;
            if (u >= share.end) {
                return;
            }
            unit = unit_at(args, share, u);
        }
        const u32 chunk = t % 8, base = ptx::shared_address(shared.q);
#pragma unroll
        for (u32 r = t / 8; r < kHeads; r += kTakers / 8) {
            const i32 h = unit.head + static_cast<i32>(r);
            const u16* src = args.q + unit.row * args.q_stride + static_cast<i64>(h) * (Tiles * kTileColumns) +
                chunk * 8;
            uint4 w[Tiles];
#pragma unroll
            for (int tile = 0; tile < Tiles; ++tile) {
                w[tile] = make_uint4(0, 0, 0, 0);
                if (h < args.heads) {
                    w[tile] = *reinterpret_cast<const uint4*>(src + tile * kTileColumns);
                }
            }
#pragma unroll
            for (int tile = 0; tile < Tiles; ++tile) {
                u32 v[4] = {w[tile].x, w[tile].y, w[tile].z, w[tile].w};
                if (tile < Tiles - Rows::kBf16Tiles) {
                    to_type(v);
                }
                asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                    ::"r"(base + tile * kTileBytes + tile_byte(r, chunk)), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                    : "memory");
            }
        }
        ptx::fence_async_proxy();
        ptx::group_sync<3, kTakers>();
        if (t < Rows::kFetchers) {  // q_full expects the fetchers, who bring the queries of later units
            ptx::barrier_arrive(ptx::shared_address(&shared.q_full));
        }
    }
};

// Rows of TileCount * 64 bf16 values, copied as they are. run is the life of a fetching thread. Scattered: rows are
// asked into L2 first; where a batch selects the same rows many times they are there anyway.
template <int TileCount, bool Scattered>
struct CopiedRows {
    using Type = ptx::Bf16;  // of the tiles
    static constexpr int kFetchers = sparrow_sparse::kFetchers;
    static constexpr int Tiles = TileCount;
    static constexpr int kBf16Tiles = Tiles;  // last tiles that are bf16 whatever the type
    static constexpr u32 kMaskWriters = 4;    // arrivals on the first part beside those of the fetchers: one per warp
    static constexpr int kRows = 4;           // rows of a block that a thread copies chunks of
    static constexpr i64 kRowBytes = Tiles * 128;
    using Blocks = Ahead<Tiles, kRowBytes, false>;
    using Block = typename Blocks::Block;
    static constexpr bool kScattered = Scattered;
    static constexpr bool kPublishFirst = false;
    static constexpr bool kStored = false;
    static constexpr bool kQuarters = false;
    static constexpr bool kTwoStreams = false;

    const u8* source[kRows];
    u32 valid = 0;  // bit i: row i is there

    // Which of the warp's 16 keys row i of this thread is, as a lane of Block.
    static __device__ __forceinline__ u32 lane_of(int i, u32 t) { return i * 4 + t % 32 / 8; }

    __device__ __forceinline__ void locate(const SparseAttendArgs& args, const Block& c, u32 t) {
        const SelectionView& s = c.stream(args);
        valid = 0;
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            const i32 slot = __shfl_sync(ptx::kFullMask, c.slot, lane_of(i, t));
            valid |= slot >= 0 ? 1u << i : 0u;
            source[i] = slot >= 0 ? page_of(s, slot) + (slot & s.page_mask) * kRowBytes + t % 8 * 16 : s.base;
        }
    }

    __device__ __forceinline__ void copy_tiles(u32 base, u32 t, int from, int to) const {
#pragma unroll
        for (int tile = from; tile < to; ++tile) {
#pragma unroll
            for (int i = 0; i < kRows; ++i) {
                const u32 key = Block::own_key(t / 32 * 32 + lane_of(i, t));
                ptx::copy_16(base + tile * kTileBytes + tile_byte(key, t % 8), source[i] + tile * 128, valid >> i & 1);
            }
        }
    }

    static __device__ __forceinline__ void run(const SparseAttendArgs& args, Storage<Tiles>& shared, u32 t) {
        u32 done = 0, queries = 0;  // blocks, and queries of 64 heads
        CopiedRows rows;
        Blocks ahead(args);
        Block now = ahead.next(args, t), next = ahead.next(args, t), third = ahead.next(args, t);
        now.settle(args);
        next.settle(args);
        for (; now.there(); ++done) {
            const u32 b = done & 1, parity = (done >> 1 & 1) ^ 1, base = ptx::shared_address(shared.k[b]);
            const u32 mask = now.mask();
            rows.locate(args, now, t);
            ptx::barrier_wait(ptx::shared_address(&shared.k_empty[b][0]), parity);
            if (t % 32 == 0) {
                write_mask(shared.valid[b], t / 32, mask);
                ptx::barrier_arrive(ptx::shared_address(&shared.k_full[b][0]));
            }
            rows.copy_tiles(base, t, 0, kPartTiles[1]);
            ptx::copies_arrive(ptx::shared_address(&shared.k_full[b][0]));
            if (now.fresh()) {  // their place may be free later than the keys'
                const Unit u = unit_at(args, Share(args), now.unit());
                ptx::barrier_wait(ptx::shared_address(&shared.q_empty), (queries & 1) ^ 1);
                Queries<CopiedRows>::ask(args, shared, u.row, u.head, t);
                ++queries;
            }
            ptx::barrier_wait(ptx::shared_address(&shared.k_empty[b][1]), parity);
            rows.copy_tiles(base, t, kPartTiles[1], Tiles);
            ptx::copies_arrive(ptx::shared_address(&shared.k_full[b][1]));
            third.settle(args);
            now = next;
            next = third;
            third = ahead.next(args, t);
        }
    }
};

}  // namespace sparrow_sparse
