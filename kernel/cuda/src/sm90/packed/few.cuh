// Matrix products of up to 8 or 16 tokens with packed weights: out = x * weight transposed, for one matrix or for all
// experts that have rows. Arguments are those of product.cuh, and results are bitwise equal.
//
// Block: persistent. One warp copies: the copy engine loads a unit of weights in one piece, together with the rows of
//        the tokens for the unit. The other warps have 16 weight rows each. They widen the weights in registers to the
//        A operand of the tensor cores and multiply eight tokens at a time. Warps do not wait for the products of
//        another warp.
// Bytes: weights are read once from memory for each group of tokens.
#pragma once

#include "ptx/matrix.cuh"
#include "ptx/mma.cuh"
#include "sm90/packed/output.cuh"

namespace sparrow_packed {

// Shared memory per block, depending on how many blocks share an SM. A stage holds the weights of some stripes and
// the rows of N tokens for the unit. Each row is padded so that eight 16-byte pieces that are read together (one
// piece of eight rows, or four pieces of two rows for turned formats) are in different banks. Listed is the maximum
// number of experts that have rows.
template <class F, int N, int Listed>
struct FewRoom {
    static constexpr int Pitch = F::K * 2 + 16;
    static constexpr int limit(int blocks) { return (sparrow_tile::kSharedLimit + 1024) / blocks - 1024; }
    static constexpr int stage(int stripes) { return stripes * F::Bytes + N * Pitch; }
    static constexpr int stages(int stripes, int blocks) {
        return (limit(blocks) - Listed * 16 - 512 - Table<F>::TableBytes) / stage(stripes);
    }
    // The conversion to bf16 is bound by latency, which three blocks of eight warps hide better than one block of
    // sixteen warps. For experts, one block per SM is faster, because shared memory remains for the first units of the
    // next kernel.
    static constexpr bool Three = stages(2, 3) >= 2;
};

// Shapes of the kernel for up to N tokens. A thread block has BlockStripes stripes of 64 weight rows; a warp has
// WarpPieces pieces of 16 rows, which share its reads of tokens.
template <class Format, int N, int MostListed, int BlockStripes, int WarpPieces = 1>
struct FewOf {
    using F = Format;
    using Room = FewRoom<F, N, MostListed>;
    static constexpr int Tokens = N, Stripes = BlockStripes, Blocks = Stripes < 4 ? 3 : 4 * WarpPieces / Stripes;
    static constexpr int Listed = MostListed;
    static constexpr int Groups = Stripes, Pieces = WarpPieces, Warps = 4 * Groups / Pieces, Threads = 32 * Warps + 32;
    static constexpr bool Whole = false;
    static constexpr int Pitch = Room::Pitch, WeightBytes = Stripes * F::Bytes, StageBytes = Room::stage(Stripes);
    static constexpr int Limit = Room::limit(Blocks), Fit = Room::stages(Stripes, Blocks);
    static constexpr int Stages = Fit < 16 ? Fit : 16;
    static_assert(Stages >= 2, "a ring of stages");
    static_assert(F::Bytes % 16 == 0, "alignment");
};
template <class F, int N, int Listed>
using Few = FewOf<F, N, Listed, FewRoom<F, N, Listed>::Three ? 2 : 4>;
// For experts with many tiles: warps of 32 rows. An SM has two blocks of four stripes or, for formats with small
// stripes, one block of eight, whose warps share one lookup table and one copy of the tokens.
template <class F, int Stripes>
using FewExperts = FewOf<F, 16, 512, Stripes, 2>;

template <class S>
struct FewStorage {
    u8 stages[S::Stages][S::StageBytes];  // weights of Stripes stripes, then token rows [tokens][Pitch]
    alignas(128) u8 table[Table<typename S::F>::TableBytes + 16];
    ListedView list[S::Listed];
    u64 full[S::Stages], empty[S::Stages];
    i32 listed;
    u32 last;
};

template <class S>
constexpr u32 few_shared_bytes() {
    static_assert(sizeof(FewStorage<S>) <= S::Limit, "more than the blocks of an SM can have");
    return sizeof(FewStorage<S>);
}

// The part of an item that a lane of the copy warp copies: the row of one token.
template <class S>
struct Feed {
    const u8* weights;
    const u8* row;
    i32 count, tile;
    Span span;

    __device__ __forceinline__ Feed(const PackedArgs& args, const Item& item)
        : weights(weights_of<S>(args, item)), row(nullptr), count(item.count), tile(item.tile),
          span(span_of(args, item.part)) {}

    // Finds the row of this lane; must be called after the previous kernel has finished.
    __device__ __forceinline__ void find(const PackedArgs& args, const Item& item, u32 lane) {
        const i32 place = item.first + min(static_cast<i32>(lane), count - 1);
        const i64 at = args.order == nullptr || args.from_pairs ? place : args.order[place] / args.top;
        row = args.x + at * args.x_pitch;
    }
    // Returns the bytes of a token row that belong to a unit.
    static __device__ __forceinline__ i32 bytes(const PackedArgs& args, i32 unit) {
        return max(0, min(S::F::K * 2, args.x_bytes - unit * (S::F::K * 2)));
    }
    // Starts the copy of the weights of a stage. If the token rows end before the unit does, fills the rest with zeros.
    __device__ __forceinline__ void begin(const PackedArgs& args, FewStorage<S>& shared, u32 stage, i32 unit,
                                          u32 lane) const {
        const i32 n = bytes(args, unit);
        if (n < S::F::K * 2 && static_cast<i32>(lane) < count) {
            u8* to = shared.stages[stage] + S::WeightBytes + lane * S::Pitch;
            for (i32 i = n; i < S::F::K * 2; i += 16) {
                *reinterpret_cast<uint4*>(to + i) = make_uint4(0, 0, 0, 0);
            }
            ptx::fence_async_proxy();
        }
        __syncwarp();
        if (lane == 0) {
            const u32 full = ptx::shared_address(&shared.full[stage]);
            // An item has some stripes of a tile, or several tiles; the last item of a weight can have fewer tiles.
            constexpr i32 kTiles = (S::Stripes + kStripes - 1) / kStripes, kCopyBytes = S::WeightBytes / kTiles;
            const i32 tiles = S::Stripes <= kStripes ? 1 : min(kTiles, args.tiles - tile * kTiles);
            ptx::barrier_expect(full, tiles * kCopyBytes + count * n);
            for (i32 i = 0; i < tiles; ++i) {
                ptx::load_bytes(ptx::shared_address(shared.stages[stage]) + i * kCopyBytes,
                                weights + (static_cast<i64>(i) * args.units + unit) * (kStripes * S::F::Bytes),
                                kCopyBytes, full, ptx::kEvictFirst);
            }
        }
        __syncwarp();
    }
    __device__ __forceinline__ void tokens(const PackedArgs& args, FewStorage<S>& shared, u32 stage, i32 unit,
                                           u32 lane) const {
        const i32 n = bytes(args, unit);
        if (static_cast<i32>(lane) < count && n > 0) {
            ptx::load_bytes(ptx::shared_address(shared.stages[stage]) + S::WeightBytes + lane * S::Pitch,
                            row + unit * (S::F::K * 2), n, ptx::shared_address(&shared.full[stage]),
                            ptx::kEvictNormal);
        }
    }
};

template <class S>
__device__ __forceinline__ void feed_few(const PackedArgs& args, FewStorage<S>& shared, u32 lane) {
    Walk<S> walk;
    Cursor at;
    Item item;
    // Weights were written before the previous kernel started and, unless late(args), so was the list of experts. The
    // copies of the first units are therefore issued before waiting for the previous kernel.
    i32 primed = 0;
    if (!late(args)) {
        Walk<S> first;
        if (first.next(shared, args, item)) {
            const Feed<S> f(args, item);
            for (; primed < min(S::Stages, f.span.end - f.span.begin); ++primed) {
                f.begin(args, shared, primed, f.span.begin + primed, lane);
            }
        }
        ptx::wait_for_previous_kernel();
    }
    ptx::release_next_kernel();
    while (walk.next(shared, args, item)) {
        Feed<S> f(args, item);
        f.find(args, item, lane);
        for (i32 unit = f.span.begin; unit < f.span.end; ++unit) {
            if (primed-- <= 0) {
                ptx::barrier_wait(ptx::shared_address(&shared.empty[at.stage]), at.parity ^ 1);
                f.begin(args, shared, at.stage, unit, lane);
            }
            f.tokens(args, shared, at.stage, unit, lane);
            at.advance(S::Stages);
        }
    }
}

// Reports whether lanes read the operands of tokens word by word instead of as matrices. Both give the same operands.
template <class S>
constexpr bool reads_words() {
    return scales_sums<typename S::F>() && S::Pieces == 2;
}

// Loads the B operands of eight tokens for two steps of 16 columns.
template <class S>
__device__ __forceinline__ void load_tokens(u32 (&b)[4], u32 at) {
    if constexpr (S::F::Turned) {
        const uint4 v = load_16(at);
        b[0] = v.x, b[1] = v.y, b[2] = v.z, b[3] = v.w;
    } else if constexpr (reads_words<S>()) {
        b[0] = load_4(at), b[1] = load_4(at + 16), b[2] = load_4(at + 32), b[3] = load_4(at + 48);
    } else {
        ptx::load_matrices(b, at);
    }
}

// Sums the products of the units of a span, starting at zero, for pieces of 16 weight rows by 8 * Eights tokens. warp
// is the number of the first piece in its stripe.
template <class S, int Eights>
__device__ __forceinline__ void add_units(FewStorage<S>& shared, float (&sum)[S::Pieces][S::Tokens / 2],
                                          const Span& span, i32 count, Cursor& at, u32 table, u32 group, u32 warp,
                                          u32 lane) {
    using F = typename S::F;
    constexpr int kBatches = F::K / 64;
    // Offset of this lane's token; in turned formats, lanes without a token read the last token.
    u32 x[Eights];
#pragma unroll
    for (int e = 0; e < Eights; ++e) {
        const u32 token = 8 * e + (F::Turned || reads_words<S>() ? lane / 4 : lane % 8);
        x[e] = S::WeightBytes + (F::Turned          ? min(token, static_cast<u32>(count) - 1) * S::Pitch + lane % 4 * 32
                                 : reads_words<S>() ? token * S::Pitch + lane % 4 * 4
                                                    : token * S::Pitch + lane / 8 * 16);
    }
#pragma unroll
    for (int i = 0; i < S::Pieces * S::Tokens / 2; ++i) {
        sum[i / (S::Tokens / 2)][i % (S::Tokens / 2)] = 0;
    }
    float2 fractions[S::Pieces];
#pragma unroll
    for (int p = 0; p < S::Pieces; ++p) {
        fractions[p] = make_float2(1, 1);
    }
#pragma unroll 1
    for (i32 unit = span.begin; unit < span.end; ++unit) {
        const u32 stage = ptx::shared_address(shared.stages[at.stage]);
        ptx::barrier_wait(ptx::shared_address(&shared.full[at.stage]), at.parity);
        F format[S::Pieces];
#pragma unroll
        for (int p = 0; p < S::Pieces; ++p) {
            format[p] = unit_of<F>(stage + group * F::Bytes, table, warp + p, lane);
        }
#pragma unroll
        for (int b = 0; b < kBatches; ++b) {
            u32 tokens[Eights][2][4];
#pragma unroll
            for (int p = 0; p < S::Pieces; ++p) {
                u32 a[4][4];
                if constexpr (scales_sums<F>()) {
                    if (b % 2 == 0) {
                        scale_sums<4 * Eights>(sum[p], format[p].begin_group(b / 2, fractions[p]));
                    }
                }
                format[p].batch(a, b);
#pragma unroll
                for (int e = 0; p == 0 && e < Eights; ++e) {
#pragma unroll
                    for (int h = 0; h < 2; ++h) {
                        load_tokens<S>(tokens[e][h], stage + x[e] + b * 128 + h * (F::Turned ? 16 : 64));
                    }
                }
                if (b == kBatches - 1 && p == S::Pieces - 1) {  // codes and tokens of the stage are in registers
                    sparrow_tile::arrive_warp(ptx::shared_address(&shared.empty[at.stage]));
                    at.advance(S::Stages);
                }
#pragma unroll
                for (int s = 0; s < 4; ++s) {
#pragma unroll
                    for (int e = 0; e < Eights; ++e) {
                        ptx::multiply_16x8(&sum[p][4 * e], a[s], tokens[e][s / 2][s % 2 * 2],
                                           tokens[e][s / 2][s % 2 * 2 + 1]);
                    }
                }
            }
        }
    }
    if constexpr (scales_sums<F>()) {
#pragma unroll
        for (int p = 0; p < S::Pieces; ++p) {
            scale_sums<4 * Eights>(sum[p], fractions[p]);
        }
    }
}

template <class S>
__device__ __forceinline__ void multiply_few(const PackedArgs& args) {
    extern __shared__ __align__(128) u8 dynamic_shared[];
    FewStorage<S>& shared = *reinterpret_cast<FewStorage<S>*>(dynamic_shared);
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::Stages; ++i) {
            ptx::barrier_init(ptx::shared_address(&shared.full[i]), 1);
            ptx::barrier_init(ptx::shared_address(&shared.empty[i]), S::Warps);
        }
        ptx::barrier_init_fence();
    }
    Table<typename S::F>::fill(shared.table, threadIdx.x, S::Threads);
    read_list<S>(args, shared);
    constexpr int kThreads = 128 / S::Pieces;  // of a stripe
    const u32 group = __shfl_sync(ptx::kFullMask, threadIdx.x / kThreads, 0), lane = threadIdx.x % 32;
    if (group == S::Groups) {
        feed_few<S>(args, shared, lane);
        return;
    }
    const u32 warp = threadIdx.x % kThreads / 32 * S::Pieces;
    const u32 table = Table<typename S::F>::of_lane(ptx::shared_address(shared.table), lane);
    Walk<S> walk;
    Cursor at;
    Item item;
    while (walk.next(shared, args, item)) {
        float sum[S::Pieces][S::Tokens / 2];
        const Span span = span_of(args, item.part);
        if (S::Tokens > 8 && item.count > 8) {
            add_units<S, S::Tokens / 8>(shared, sum, span, item.count, at, table, group, warp, lane);
        } else {
            add_units<S, 1>(shared, sum, span, item.count, at, table, group, warp, lane);
        }
        if constexpr (S::Stripes > kStripes) {
            if (item.tile * S::Stripes + static_cast<i32>(group) >= args.tiles * kStripes) {
                continue;  // the item has fewer stripes; the sums are of whatever is in shared memory
            }
        }
#pragma unroll
        for (int p = 0; p < S::Pieces; ++p) {
            if (args.parts == 1 || add_parts_of_warp<S>(args, sum[p], item, threadIdx.x / 32 * S::Pieces + p, lane)) {
                write<S>(args, sum[p], item, item.tile * S::Stripes + static_cast<i32>(group), warp + p, lane);
            }
        }
    }
}

}  // namespace sparrow_packed

#define PACKED_FEW(Name, ...)                                                                      \
    extern "C" __global__ void __launch_bounds__(sparrow_packed::__VA_ARGS__::Threads,             \
                                                 sparrow_packed::__VA_ARGS__::Blocks)              \
        sparrow_packed_##Name(const __grid_constant__ PackedArgs args) {                           \
        sparrow_packed::multiply_few<sparrow_packed::__VA_ARGS__>(args);                           \
    }                                                                                              \
    extern "C" __device__ const u32 sparrow_packed_##Name##_shared =                               \
        sparrow_packed::few_shared_bytes<sparrow_packed::__VA_ARGS__>();
