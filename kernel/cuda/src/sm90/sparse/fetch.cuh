// Fetching warpgroups, part one: queries.
#pragma once

#include "ptx/copy.cuh"
#include "ptx/wgmma_half.cuh"
#include "sm90/sparse/ahead.cuh"

namespace sparrow_sparse {

// Converts eight bf16 values to Type and interleaves them (interleaved).
template <class Type>
__device__ __forceinline__ void interleave(u32 (&w)[4]) {
    const u32 v[4] = {w[0], w[1], w[2], w[3]};
#pragma unroll
    for (int k = 0; k < 2; ++k) {
        w[2 * k] = Type::pack(__uint_as_float(v[k] << 16), __uint_as_float(v[k + 2] << 16));
        w[2 * k + 1] = Type::pack(__uint_as_float(v[k] & 0xFFFF0000u), __uint_as_float(v[k + 2] & 0xFFFF0000u));
    }
}

// Copies the queries of 64 heads of a row to shared memory; heads beyond the last are zeros. A thread copies chunk t
// % 8 of every tile of its rows and then converts it to the type of the key tiles. The conversion has three steps, so
// that the first tiles are converted while the others are still being loaded. Rows defines the type, and how many of
// the last tiles stay bf16.
template <class Rows>
struct Queries {
    static constexpr int Tiles = Rows::Tiles;
    static constexpr int kSteps = 3;

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
            ptx::copies_commit();
        }
    }

    // Converts eight bf16 values to Type. Values outside the range of half precision become its largest finite value.
    static __device__ __forceinline__ void to_type(u32 (&w)[4]) {
        if constexpr (interleaved<Rows>()) {
            interleave<typename Rows::Type>(w);
        } else {
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                w[k] = Rows::Type::pack(__uint_as_float(w[k] << 16), __uint_as_float(w[k] & 0xFFFF0000u));
            }
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

    // Loads the queries of the first unit with keys, by kTakers threads that are idle until its keys arrive. The
    // queries are then loaded at the same time as lengths, lists and rows, which depend on each other. Thread t has
    // chunk t % 8 of each of its rows.
    static constexpr u32 kTakers = 256;

    static __device__ __forceinline__ void take_first(const SparseAttendArgs& args, Storage<Tiles>& shared, u32 t) {
        const Share share(args);
        if (share.first >= share.end) {
            return;
        }
        // Assumes that the first unit has keys, which is true of most, so that queries are loaded before the lengths
        // are known.
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
        // q_full is initialised with kFetchers arrivals, so only kFetchers of the kTakers threads arrive.
        if (t < Rows::kFetchers) {
            ptx::barrier_arrive(ptx::shared_address(&shared.q_full));
        }
    }
};

}  // namespace sparrow_sparse
