// Matrix products with the experts' e2m1 weights, widened to e4m3, for many tokens: gate and up with the activation,
// or down.
//
// In:    rows in the layout of Placed (gather.cuh): codes of x for gate and up, inner for down. Weights, order and list
//        as in product.cuh.
// Out:   gate and up: inner in the layout of Placed, with the inner blocks of down as blocks of k. Down: as in
//        product.cuh. Both are bitwise equal to those of product.cuh.
// Block: one per SM, in clusters of two. An item is 256 weight rows by up to 256 tokens of an expert. Each block of a
//        cluster has 64 rows of either half of the weight tile (64 inner columns of gate and the same of up), and all
//        tokens. It loads half of the tokens for both. Two warpgroups multiply 64 tokens at a time; the first has
//        tokens 0 to 63 and 128 to 191. One warp loads tokens and packed weights into a ring of stages of 128 bytes of
//        k, and one warpgroup widens the weights. Gate and up: activations are quantised per 128 inner columns, so the
//        two blocks exchange the maxima of their 64 columns.
// Bytes: for each block of k and thread block, 16 KB of tokens and 8.5 KB of weights from L2.
// H200:  hidden 7168, inner 2048, 64 experts of 512 rows: gate and up 1780 us with the gathering, down 898 us.
#pragma once

#include "ptx/peer.cuh"
#include "sm90/experts/folded.cuh"
#include "sm90/experts/gather.cuh"
#include "sm90/experts/output_many.cuh"

namespace sparrow_experts {

template <Step Which>
struct Wide {
    using Type = Folded;
    static constexpr Step kStep = Which;
    static constexpr int MaxTokens = kPlacedGroup;
    static constexpr int Cluster = 2, Blocks = 1;
    static constexpr int Stages = 4;        // stages of tokens and of packed weights
    static constexpr int WeightStages = 2;  // stages of widened weights
    static constexpr int Threads = kThreads + 128;
    static constexpr int HalfRows = kTileRows / 2;  // weight rows of a block of the cluster
    static constexpr int Pieces = HalfRows / 16;
    // Bytes of the packed weights of half of HalfRows, which are contiguous.
    static constexpr u32 RunBytes = Stored<Folded>::TileBytes / 4;
    static constexpr int MathRegisters = 216, CopyRegisters = 40, FoldRegisters = 40;
};

template <Step Which>
struct Storage<Wide<Which>> {
    using S = Wide<Which>;
    // The first five members have no padding between them: kInputs to kEmpty are their offsets.
    u8 weights[S::WeightStages][S::HalfRows * kBlockBytes];  // widened e4m3 codes, [128 rows][128 bytes]
    u8 inputs[S::Stages][S::MaxTokens * kBlockBytes];
    float scales[S::Stages][S::MaxTokens + 4];  // scales of the tokens, then two of the halves of the weight tile
    u64 full[S::Stages], empty[S::Stages];
    static constexpr u32 kInputs = sizeof(weights), kScales = kInputs + sizeof(inputs),
                         kFull = kScales + sizeof(scales), kEmpty = kFull + sizeof(full);
    static_assert(kFull % 8 == 0, "barriers take eight bytes");
    u8 staged[kGroups][64 * kRowPitch];
    alignas(128) u8 incoming[S::Stages][2 * S::RunBytes];  // packed weights
    uint2 list[kMaxExperts + 2];
    i32 pairs[4 * kGroups][32];   // down: the pairs of a warp's first 16 tokens, then of its second 16
    float largest[2][S::MaxTokens];  // gate and up: maxima of the other block for even and odd items
    u64 exchanged[2];                // barriers of largest
    u64 arrived[S::Stages];          // barriers of incoming
    alignas(8) u8 codes[15][8];  // e4m3 codes of the eight magnitudes, for each relative exponent from -8 to 6
    i32 listed;                  // number of entries of list
};

template <class S>
using WideWalk = Walk<S, S::Cluster>;

// An item, and where its rows are in memory (gather.cuh).
struct WideItem {
    i32 place;  // first row of memory
    i32 tile, first, count;

    template <class S>
    __device__ __forceinline__ static WideItem of(const Storage<S>& shared, const WideWalk<S>& walk, const Item& item) {
        const i32 first = static_cast<i32>(shared.list[walk.at].y);
        return {placed_first(first, walk.at) + item.first - first, item.tile, item.first, item.count};
    }
};

// Copies bytes to the same shared-memory offset in both blocks of the cluster. A barrier of each block counts them.
__device__ __forceinline__ void load_bytes_both(u32 dst, const void* src, u32 bytes, u32 bar, u64 policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%0], "
        "[%1], %2, [%3], %4, %5;" ::"r"(dst), "l"(src),
        "r"(bytes), "r"(bar), "h"(static_cast<u16>(3)), "l"(policy)
        : "memory");
}

// Loads tokens and packed weights of all items of the block, with one warp.
template <class S>
__device__ void feed_wide(const ExpertsArgs& args, Storage<S>& shared, u32 rank) {
    const Source from = source<S>(args);
    const Placed rows = S::kStep == Step::kGateUp ? placed_x(args) : Placed{args.inner, args.inner_scales};
    const u32 lane = threadIdx.x % 32;
    WideWalk<S> walk;
    Cursor ring;
    Item item;
    while (walk.next(shared, from.tiles, item)) {
        const i32 place = WideItem::of<S>(shared, walk, item).place;
        const u32 count = round_up_8(item.count), half = count / 16 * 8, begin = rank == 0 ? 0 : half;
        const u32 bytes = (rank == 0 ? half : count - half) * kBlockBytes;  // tokens that this block loads
        const u8* tokens = rows.codes + static_cast<i64>(place) * from.blocks * kBlockBytes + begin * kBlockBytes;
        const float* token_scales = rows.scales + static_cast<i64>(place) * from.blocks;
        const u8* weights = weights_of<S>(from, item) + rank * S::RunBytes;
        const float2* weight_scales =
            from.weight_scales + (static_cast<i64>(item.expert) * from.tiles + item.tile) * from.blocks;
        const bool once = shared.list[walk.at + 1].y - shared.list[walk.at].y <= S::MaxTokens;
        const u64 policy = once ? ptx::kEvictFirst : ptx::kEvictNormal;
        float2 scale;  // scales of one of 32 blocks of k
#pragma unroll 1
        for (i32 block = 0; block < from.blocks; ++block) {
            if (block % 32 == 0) {
                const i32 i = block + static_cast<i32>(lane);
                scale = i < from.blocks ? __ldg(weight_scales + i) : make_float2(0, 0);
            }
            const u32 stage = ring.stage, full = ptx::shared_address(&shared.full[stage]);
            ptx::barrier_wait(ptx::shared_address(&shared.empty[stage]), ring.parity ^ 1);
            if (lane == block % 32) {
                *reinterpret_cast<float2*>(&shared.scales[stage][S::MaxTokens]) = scale;
            }
            __syncwarp();
            if (lane == 0) {
                const u32 inputs = ptx::shared_address(shared.inputs[stage]);
                const u32 arrived = ptx::shared_address(&shared.arrived[stage]);
                const u32 to = ptx::shared_address(shared.incoming[stage]);
                ptx::barrier_expect(full, count * (kBlockBytes + 4));
                ptx::barrier_expect(arrived, 2 * S::RunBytes);
                if (bytes > 0) {
                    load_bytes_both(inputs + begin * kBlockBytes, tokens, bytes, full, ptx::kEvictNormal);
                }
                ptx::load_bytes(ptx::shared_address(shared.scales[stage]), token_scales, count * 4, full,
                                ptx::kEvictNormal);
                ptx::load_bytes(to, weights, S::RunBytes, arrived, policy);
                ptx::load_bytes(to + S::RunBytes, weights + 2 * S::RunBytes, S::RunBytes, arrived, policy);
            }
            tokens += count * kBlockBytes;
            token_scales += count;
            weights += Stored<Folded>::TileBytes;
            ring.advance(S::Stages);
        }
    }
}

// Widens two stored pieces of 16 rows at `from` to rows of a stage; own is the address of a lane's fragments.
template <bool Small>
__device__ __forceinline__ void widen_pieces(u32 from, u32 own, const uint2 (&scales)[2], uint4 part, u32 lane,
                                             u32 codes) {
#pragma unroll
    for (u32 p = 0; p < 4; ++p) {
        const uint4 now = part;
        if (p < 3) {  // the load of the next part overlaps the widening of this one
            part = ptx::load_vector(from + (p + 1) / 2 * Stored<Folded>::PieceBytes + (p + 1) % 2 * 512 + lane * 16);
        }
#pragma unroll
        for (u32 g = p % 2 * 2; g < p % 2 * 2 + 2; ++g) {
            u32 a[4];
            widen_columns<Small>(a, now, scales[p / 2], g, codes);
            ptx::store_fragments((own + p / 2 * 16 * kBlockBytes) ^ 32 * g, a);
        }
    }
}

// Widens a warp's part of the weight tiles of all items of the block, in order: two pieces of 16 rows per tile. Warps 0
// and 1 have the first 128 rows of the tile, warps 2 and 3 the others.
template <class S>
__device__ void fold_wide(const ExpertsArgs& args, Storage<S>& shared) {
    static_assert(S::Stages == 2 * S::WeightStages, "the stage of a block tells its weights'");
    const Source from = source<S>(args);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    const u32 incoming = ptx::shared_address(shared.incoming[0]) + warp * 2 * Stored<Folded>::PieceBytes,
              arrived = ptx::shared_address(&shared.arrived[0]), full = ptx::shared_address(&shared.full[0]),
              empty = ptx::shared_address(&shared.empty[0]), codes = ptx::shared_address(shared.codes);
    // The address of row l%16 from column 16 (l/16), swizzled. The addresses of other columns differ from it only by an
    // XOR of some bits.
    const u32 own = ptx::shared_address(shared.weights[0]) + (warp * 32 + lane % 16) * kBlockBytes +
                    ((lane % 8 ^ lane / 16) * 16);
    WideWalk<S> walk;
    Cursor ring;
    Item item;
    while (walk.next(shared, from.tiles, item)) {
#pragma unroll 1
        for (i32 left = from.blocks; left > 0; --left) {
            ptx::barrier_wait(arrived + 8 * ring.stage, ring.parity);
            const u32 piece = incoming + ring.stage * sizeof(shared.incoming[0]);
            const uint4 part = ptx::load_vector(piece + lane * 16);
            const uint2 scales[2] = {
                load_codes(piece + Stored<Folded>::CodeBytes + lane / 4 * 8),
                load_codes(piece + Stored<Folded>::PieceBytes + Stored<Folded>::CodeBytes + lane / 4 * 8)};
            // Waits until the products of the block of k before the previous one have read this stage.
            ptx::barrier_wait(empty + 8 * (ring.stage ^ S::WeightStages),
                              ring.stage >= S::WeightStages ? ring.parity : ring.parity ^ 1);
            const u32 to = own + ring.stage % S::WeightStages * sizeof(shared.weights[0]);
            if (__any_sync(ptx::kFullMask, small_scales(scales[0]) || small_scales(scales[1]))) {
                widen_pieces<true>(piece, to, scales, part, lane, codes);
            } else {
                widen_pieces<false>(piece, to, scales, part, lane, codes);
            }
            ptx::fence_async_proxy();
            arrive_warp(full + 8 * ring.stage);  // also marks the packed pieces as read by the warp
            ring.advance(S::Stages);
        }
    }
}

// Computes sum += d * scale of the token * scale of the column's half of the weight tile. A lane has two tokens.
__device__ __forceinline__ void promote_wide(float (&sum)[64], const float (&d)[64], float2 halves, float upper,
                                             float lower) {
    const float a = __fmul_rn(halves.x, upper), b = __fmul_rn(halves.x, lower), c = __fmul_rn(halves.y, upper),
                e = __fmul_rn(halves.y, lower);
#pragma unroll
    for (int i = 0; i < 64; ++i) {
        const bool low = i / 2 % 2 != 0;
        sum[i] = __fmaf_rn(d[i], i < 32 ? (low ? b : a) : (low ? e : c), sum[i]);
    }
}

// A math warp of an item.
struct WideWarp {
    u32 group, warp, lane;  // warpgroup 0 or 1; warp 0 to 7
    i32 token;              // the warp's first token; its second 16 tokens start 128 later
    u32 staged;             // address of the warp's memory for 16 tokens

    template <class S>
    __device__ __forceinline__ explicit WideWarp(Storage<S>& shared)
        : group(__shfl_sync(ptx::kFullMask, threadIdx.x / 128, 0)),
          warp(threadIdx.x / 32),
          lane(threadIdx.x % 32),
          token(static_cast<i32>(16 * warp)),
          staged(ptx::shared_address(shared.staged[0]) + warp * 16 * kRowPitch) {}
};

// Multiplies all blocks of k: 64 tokens by 128 weights and, if two is set, another 64 tokens. The addresses and
// descriptors of the next block of k are computed while products run.
template <class S>
__device__ __forceinline__ void multiply_wide(float (&first)[64], float (&second)[64], Storage<S>& shared,
                                              const WideWarp& at, i32 blocks, Cursor& ring, bool two) {
    u64 inputs, weights;
    u32 scales;
    bool arrived;
    const auto prepare = [&] {
        inputs = ptx::operand_128b(ptx::shared_address(shared.inputs[ring.stage]) + at.group * kOperandBytes);
        weights = ptx::operand_128b(ptx::shared_address(shared.weights[ring.stage % S::WeightStages]));
        scales = ptx::shared_address(shared.scales[ring.stage]);
        arrived = barrier_test(ptx::shared_address(&shared.full[ring.stage]), ring.parity);
    };
    prepare();
#pragma unroll 1
    for (i32 block = 0; block < blocks; ++block) {
        const u32 stage = ring.stage;
        if (!arrived) {
            ptx::barrier_wait(ptx::shared_address(&shared.full[stage]), ring.parity);
        }
        ring.advance(S::Stages);
        const auto multiply = [&](float(&sum)[64], u32 tokens, bool last) {
            float d[64];
            ptx::mma_pin(d);
            ptx::mma_fence();
            multiply_block<E4m3, 128>(d, inputs + tokens * (kBlockBytes >> 4), weights, false);
            ptx::mma_commit();
            const u32 own = scales + (at.token + tokens + at.lane / 4) * 4;
            const float upper = ptx::load_float(own), lower = ptx::load_float(own + 32);
            const float2 halves = ptx::load_pair(scales + 4 * S::MaxTokens);
            if (last && block + 1 < blocks) {
                prepare();
            }
            ptx::mma_wait<0>();
            ptx::mma_pin(d);
            if (last) {  // releases the stage in both blocks of the cluster
                __syncwarp();
                if (at.lane < S::Cluster) {
                    ptx::peer_arrive(ptx::peer_address(ptx::shared_address(&shared.empty[stage]), at.lane));
                }
            }
            promote_wide(sum, d, halves, upper, lower);
        };
        if (two) {
            multiply(first, 0, false);
            multiply(second, 128, true);
        } else {
            multiply(first, 0, true);
        }
    }
}

// Gate and up: sends the maxima of a warp's 32 tokens over 64 inner columns to the other block of the cluster, and
// returns the maxima over all 128 columns. A lane has two tokens of the first 16 and two of the others.
template <class S>
__device__ __forceinline__ void exchange_largest(Storage<S>& shared, const WideWarp& at, float (&most)[4], u32 rank,
                                                 u32 turn) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        most[i] = fmaxf(most[i], __shfl_xor_sync(ptx::kFullMask, most[i], 1));
        most[i] = fmaxf(most[i], __shfl_xor_sync(ptx::kFullMask, most[i], 2));
    }
    const u32 i = at.lane % 4, slot = turn % 2, bar = ptx::shared_address(&shared.exchanged[slot]);
    const u32 own = ptx::shared_address(shared.largest[slot]) + (at.token + at.lane / 4) * 4;
    const float v = i == 0 ? most[0] : i == 1 ? most[1] : i == 2 ? most[2] : most[3];
    if (at.warp == 0 && at.lane == 0) {
        ptx::barrier_expect(bar, sizeof(shared.largest[0]));
    }
    __syncwarp();
    ptx::peer_send(ptx::peer_address(own + i % 2 * 32 + i / 2 * 512, rank ^ 1), __float_as_uint(v),
                   ptx::peer_address(bar, rank ^ 1));
    ptx::barrier_wait(bar, turn / 2 % 2);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        most[j] = fmaxf(most[j], ptx::load_float(own + j % 2 * 32 + j / 2 * 512));
    }
}

// Gate and up: writes 64 columns of the quantised activations of a warp's 16 tokens. `token` is the first of the 16;
// most: the maxima of the lane's two tokens over all 128 columns.
template <class S>
__device__ __forceinline__ void write_half(const ExpertsArgs& args, const WideItem& item, const WideWarp& at,
                                           const float (&gate)[64], const float* most, i32 token, u32 rank) {
    const i32 rows = round_up_8(item.count);
    u8* to = args.inner + (static_cast<i64>(item.place) * args.inner_blocks + item.tile * rows) * kBlockBytes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float scale = index_scale(fminf(most[half], 3.4028234663852886e38f), !args.pow2),
                    inverse = __frcp_rn(scale);
        const i32 own = token + static_cast<i32>(at.lane / 4) + 8 * half;
        if (rank == 0 && at.lane % 4 == 0 && own < item.count) {
            args.inner_scales[static_cast<i64>(item.place) * args.inner_blocks + item.tile * rows + own] = scale;
        }
        const u32 staged = at.staged + (at.lane / 4 + 8 * half) * kRowPitch + 2 * (at.lane % 4);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const u32 codes = pack_e4m3_fast(__fmul_rn(gate[4 * j + 2 * half], inverse),
                                             __fmul_rn(gate[4 * j + 2 * half + 1], inverse));
            asm volatile("st.shared.u16 [%0], %1;" ::"r"(staged + 8 * j), "h"(static_cast<u16>(codes)) : "memory");
        }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const i32 row = 8 * i + static_cast<i32>(at.lane / 4), own = token + row;
        if (own < item.count) {
            *reinterpret_cast<uint4*>(to + own * kBlockBytes + ((4 * rank + at.lane % 4) ^ own % 8) * 16) =
                ptx::load_vector(at.staged + row * kRowPitch + at.lane % 4 * 16);
        }
    }
    __syncwarp();
}

// Computes an item: both math warpgroups call it. turn: the number of items before.
template <class S>
__device__ __forceinline__ void run_wide(const ExpertsArgs& args, Storage<S>& shared, const WideItem& item,
                                         i32 blocks, Cursor& ring, u32 rank, u32 turn) {
    const WideWarp at(shared);
    i32* pairs = shared.pairs[at.warp];
    if constexpr (S::kStep == Step::kDown) {
        const i32 own = at.token + static_cast<i32>(at.lane % 16 + at.lane / 16 * 128);
        if (own < item.count) {
            copy_4(pairs + at.lane, args.order + item.first + own);
        }
        ptx::copies_commit();
    }
    float first[64], second[64];
#pragma unroll
    for (int i = 0; i < 64; ++i) {
        first[i] = second[i] = 0;
    }
    multiply_wide(first, second, shared, at, blocks, ring, item.count > 128 + 64 * static_cast<i32>(at.group));
    if constexpr (S::kStep == Step::kGateUp) {
        float most[4] = {};
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            first[i] = gated(first[i], first[32 + i], args.limit);
            second[i] = gated(second[i], second[32 + i], args.limit);
            most[i / 2 % 2] = fmaxf(most[i / 2 % 2], fabsf(first[i]));
            most[2 + i / 2 % 2] = fmaxf(most[2 + i / 2 % 2], fabsf(second[i]));
        }
        exchange_largest(shared, at, most, rank, turn);
        write_half<S>(args, item, at, first, most, at.token, rank);
        write_half<S>(args, item, at, second, most + 2, at.token + 128, rank);
    } else {
        ptx::copies_wait<0>();
        __syncwarp();
        const i32 column = item.tile * kTileRows + 64 * static_cast<i32>(rank);
        const Item group{0, item.tile, item.first, item.count};
        write_result_rows(args, group, first, pairs, column, 128, at.token, at.staged, at.lane);
        write_result_rows(args, group, second, pairs + 16, column, 128, at.token + 128, at.staged, at.lane);
    }
}

template <class S>
__device__ void multiply_wide_experts(const ExpertsArgs& args) {
    Storage<S>& shared = storage<S>();
    const u32 rank = ptx::cluster_rank();
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::Stages; ++i) {
            // Arrivals of the copying warp and of the widening warps.
            ptx::barrier_init(ptx::shared_address(&shared.full[i]), 1 + 4);
            ptx::barrier_init(ptx::shared_address(&shared.empty[i]), S::Cluster * 4 * kGroups);
            ptx::barrier_init(ptx::shared_address(&shared.arrived[i]), 1);
        }
        for (int i = 0; i < 2; ++i) {
            ptx::barrier_init(ptx::shared_address(&shared.exchanged[i]), 1);
        }
        ptx::barrier_init_fence();
    }
    ptx::wait_for_previous_kernel();
    const i32 listed = *const_cast<const volatile i32*>(args.totals);
    for (i32 i = threadIdx.x; i < listed; i += S::Threads) {
        const volatile i32* from = reinterpret_cast<const i32*>(args.list + i);
        shared.list[i] = pack_listed(from[0], from[1], from[3]);
    }
    if (threadIdx.x == 0) {
        shared.list[listed] = pack_listed(0, const_cast<const volatile i32*>(args.totals)[2], 0);
        shared.listed = listed;
    }
    if (threadIdx.x < kExponents * 8) {
        shared.codes[threadIdx.x / 8][threadIdx.x % 8] =
            folded_code(threadIdx.x % 8, static_cast<i32>(threadIdx.x / 8) + kLeastExponent);
    }
    ptx::cluster_sync();
    const u32 group = __shfl_sync(ptx::kFullMask, threadIdx.x / 128, 0);
    if (group == kGroups) {
        ptx::registers_shrink<S::CopyRegisters>();
        if (threadIdx.x % 128 < 32) {
            feed_wide<S>(args, shared, rank);
            ptx::release_next_kernel();
        }
    } else if (group > kGroups) {
        ptx::registers_shrink<S::FoldRegisters>();
        fold_wide<S>(args, shared);
    } else {
        ptx::registers_grow<S::MathRegisters>();
        const bool gate_up = S::kStep == Step::kGateUp;
        const i32 blocks = gate_up ? args.hidden_blocks : args.inner_blocks;
        const i32 tiles = gate_up ? args.inner_tiles : args.hidden_tiles;
        WideWalk<S> walk;
        Cursor ring;
        Item item;
        u32 turn = 0;
        while (walk.next(shared, tiles, item)) {
            run_wide(args, shared, WideItem::of<S>(shared, walk, item), blocks, ring, rank, turn++);
        }
    }
    __syncwarp();
    ptx::cluster_sync();  // the other block may still copy to this one and arrive at its barriers
}

}  // namespace sparrow_experts
