// Matrix products with the experts' e2m1 weights, widened to e4m3, for many tokens: gate and up with the activation,
// or down.
//
// In:    as in product.cuh.
// Out:   as in product.cuh, bitwise equal.
// Block: one per SM, 512 threads. An item is 256 weight rows by up to 256 tokens of an expert. It is computed in two
//        passes. Each pass takes 64 rows of either half of the tile (64 inner columns of gate and the same of up). A
//        tile of 256 tokens by 128 weights needs half as much widening per product as a tile of 128 tokens by 256
//        weights. One warpgroup gathers tokens, one loads packed weights and widens them, both into rings of stages of
//        128 bytes of k. The other two multiply, 64 tokens at a time; the first warpgroup has tokens 0 to 63 and 128 to
//        191. Gate and up: activations are quantised per 128 inner columns, so the activations of the first pass are
//        kept until the second pass, as float32 in the memory of the results. The activations of the second pass are
//        stored there too, because there are not enough registers; the thread that wrote a value reads it again.
#pragma once

#include "sm90/experts/feed.cuh"
#include "sm90/experts/folded.cuh"
#include "sm90/experts/output_many.cuh"

namespace sparrow_experts {

template <Step Which>
struct Wide {
    using Type = Folded;
    static constexpr Step kStep = Which;
    static constexpr int MaxTokens = 256;
    static constexpr int Stages = 4;   // stages of tokens and of packed weights, whose loads have a long latency
    static constexpr int Widened = 2;  // stages of widened weights
    static constexpr int Blocks = 1;
    static constexpr int Threads = kThreads + 128;
    static constexpr int HalfRows = kTileRows / 2;  // weight rows per stage
    static constexpr int Pieces = HalfRows / 16;
    static constexpr int MathRegisters = 216, CopyRegisters = 40, FoldRegisters = 40;
};

template <Step Which>
struct Storage<Wide<Which>> {
    using S = Wide<Which>;
    static constexpr int PieceBytes = Stored<Folded>::PieceBytes;
    // The first five members have no padding between them: kInputs to kEmpty are their offsets.
    u8 weights[S::Widened][S::HalfRows * kBlockBytes];  // widened e4m3 codes, [128 rows][128 bytes]
    u8 inputs[S::Stages][S::MaxTokens * kBlockBytes];
    float scales[S::Stages][S::MaxTokens + 4];  // scales of the tokens, then two of the halves of the weight tile
    u64 full[S::Stages], empty[S::Stages];
    static constexpr u32 kInputs = sizeof(weights), kScales = kInputs + sizeof(inputs),
                         kFull = kScales + sizeof(scales), kEmpty = kFull + sizeof(full);
    static_assert(kFull % 8 == 0, "barriers take eight bytes");
    u8 staged[kGroups][64 * kRowPitch];
    alignas(128) u8 incoming[S::Stages][S::Pieces * PieceBytes];  // halves of packed weight tiles
    uint2 list[kMaxExperts + 2];
    alignas(16) u32 rows[16][16];  // offsets of the rows of tokens i, i + 16, ... of the item that is being copied
    i32 pairs[4 * kGroups][32];                 // down: the pairs of a warp's first 16 tokens, then of its second 16
    uint4 parked[4 * kGroups];                  // the Item of each math warp
    uint2 walked[4 * kGroups];                  // the position of the Walk of each math warp
    u64 arrived[S::Stages];      // barriers of incoming
    alignas(8) u8 codes[15][8];  // e4m3 codes of the eight magnitudes, for each relative exponent from -8 to 6
    i32 listed;                  // number of entries of list
};

// Arrives at the barrier when this thread's earlier copies are complete, without waiting. More copies are then in
// flight than if the thread waited for a stage before it starts the next. The math warps execute the proxy fence for
// the tensor cores.
__device__ __forceinline__ void arrive_copied(u32 barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Starts the bulk copies of the packed weights of a block of k. A pass needs two runs of pieces, one from each half
// of the tile.
template <class S>
__device__ __forceinline__ void load_pieces(Storage<S>& shared, u32 stage, const u8* tile, i32 half, u64 policy) {
    constexpr u32 kRun = S::Pieces / 2 * Stored<Folded>::PieceBytes;
    const u32 barrier = ptx::shared_address(&shared.arrived[stage]), to = ptx::shared_address(shared.incoming[stage]);
    ptx::barrier_expect(barrier, 2 * kRun);
    ptx::load_bytes(to, tile + half * kRun, kRun, barrier, policy);
    ptx::load_bytes(to + kRun, tile + (2 + half) * kRun, kRun, barrier, policy);
}

// Loads packed weights and gathers tokens and scales. Rows beyond the count of the item repeat its last token; their
// sums are not used.
template <class S>
__device__ void feed_wide(const ExpertsArgs& args, Storage<S>& shared) {
    constexpr bool kSorted = S::kStep == Step::kDown;  // token rows are contiguous
    const Source from = source<S>(args);
    const u32 t = threadIdx.x % 128, chunk = t % 8, own = t / 8;
    Walk<S> walk;
    Cursor ring;
    Item item;
    i32 primed = 0;
    if constexpr (kSorted) {  // weights were written before the previous kernel
        Walk<S> first;
        if (t == 0 && first.next(shared, from.tiles, item)) {
            const u8* weights = weights_of<S>(from, item);
            for (; primed < min(S::Stages, from.blocks); ++primed) {
                load_pieces(shared, primed, weights + primed * Stored<Folded>::TileBytes, 0, ptx::kEvictFirst);
            }
        }
        ptx::wait_for_previous_kernel();
    }
    while (walk.next(shared, from.tiles, item)) {
        const i32 columns = (item.count + 63) / 64 * 64;
        u32 scale_of[2];  // indices of the first scales of tokens t and t + 128
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const i32 token = t + 128 * j;
            scale_of[j] = token < item.count ? row_of<S>(args, item.first + token) * from.blocks : 0;
        }
        __syncwarp();  // every eight threads, of one warp, have the same token rows
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const i32 token = min(static_cast<i32>(own + 16 * (2 * chunk + j)), item.count - 1);
            shared.rows[own][2 * chunk + j] =
                (kSorted ? token : row_of<S>(args, item.first + token)) * static_cast<u32>(from.pitch);
        }
        __syncwarp();
        const u8* rows = from.rows + (kSorted ? item.first * from.pitch : 0);
        const u8* weights = weights_of<S>(from, item);
        const float* weight_scales = reinterpret_cast<const float*>(
            from.weight_scales + (static_cast<i64>(item.expert) * from.tiles + item.tile) * from.blocks);
#pragma unroll 1
        for (i32 at = 0; at < 2 * from.blocks; ++at) {
            const i32 half = at >= from.blocks, block = half ? at - from.blocks : at;
            ptx::barrier_wait(ptx::shared_address(&shared.empty[ring.stage]), ring.parity ^ 1);
            if (t == 0 && primed-- <= 0) {
                load_pieces(shared, ring.stage, weights + block * Stored<Folded>::TileBytes, half,
                            item.count > 64 ? ptx::kEvictNormal : ptx::kEvictFirst);
            }
            const u32 byte = block * kBlockBytes + chunk * 16;
            const bool inside = byte < from.row_bytes;
            const u8* source = rows + (inside ? byte : 0);
            const u32 to =
                ptx::shared_address(shared.inputs[ring.stage]) + own * kBlockBytes + ((chunk ^ own % 8) << 4);
#pragma unroll
            for (int four = 0; four < 4; ++four) {
                if (64 * four < columns) {
                    const uint4 place = ptx::load_vector(ptx::shared_address(&shared.rows[own][4 * four]));
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        ptx::copy_16(to + 16 * (4 * four + j) * kBlockBytes,
                                     source + (j == 0 ? place.x : j == 1 ? place.y : j == 2 ? place.z : place.w),
                                     inside);
                    }
                }
            }
            float* scales = shared.scales[ring.stage];
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const i32 token = t + 128 * j;
                if (token < columns) {
                    copy_4(&scales[token], from.scales + scale_of[j] + block, token < item.count);
                }
            }
            if (t < 2) {
                copy_4(&scales[S::MaxTokens + t], weight_scales + 2 * block + t);
            }
            arrive_copied(ptx::shared_address(&shared.full[ring.stage]));
            ring.advance(S::Stages);
        }
    }
}

static_assert(Wide<Step::kDown>::Stages == 2 * Wide<Step::kDown>::Widened, "the stage of a block tells its weights'");

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
    const Source from = source<S>(args);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    const u32 incoming = ptx::shared_address(shared.incoming[0]) + warp * 2 * Stored<Folded>::PieceBytes,
              arrived = ptx::shared_address(&shared.arrived[0]), full = ptx::shared_address(&shared.full[0]),
              empty = ptx::shared_address(&shared.empty[0]), codes = ptx::shared_address(shared.codes);
    // The address of row l%16 from column 16 (l/16), swizzled. The addresses of other columns differ from it only by an
    // XOR of some bits.
    const u32 own = ptx::shared_address(shared.weights[0]) + (warp * 32 + lane % 16) * kBlockBytes +
                    ((lane % 8 ^ lane / 16) * 16);
    Walk<S> walk;
    Cursor ring;
    Item item;
    while (walk.next(shared, from.tiles, item)) {
#pragma unroll 1
        for (i32 left = 2 * from.blocks; left > 0; --left) {
            ptx::barrier_wait(arrived + 8 * ring.stage, ring.parity);
            const u32 piece = incoming + ring.stage * sizeof(shared.incoming[0]);
            const uint4 part = ptx::load_vector(piece + lane * 16);
            const uint2 scales[2] = {
                load_codes(piece + Stored<Folded>::CodeBytes + lane / 4 * 8),
                load_codes(piece + Stored<Folded>::PieceBytes + Stored<Folded>::CodeBytes + lane / 4 * 8)};
            // Waits until the products of the block of k before the previous one have read this stage.
            ptx::barrier_wait(empty + 8 * (ring.stage ^ S::Widened),
                              ring.stage >= S::Widened ? ring.parity : ring.parity ^ 1);
            const u32 to = own + ring.stage % S::Widened * sizeof(shared.weights[0]);
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

// Issues the four products of a block of k. The parameters are the lower words of the operand descriptors: the upper
// words are constant, and the sum with an offset does not overflow the address field.
__device__ __forceinline__ void multiply_words(float (&d)[64], u32 left, u32 right) {
    constexpr u64 kUpper = 0x4000004000000000ull;
    static_assert(kSteps == 4);
#pragma unroll
    for (u32 step = 0; step < kSteps; ++step) {
        ptx::Product<E4m3::Pair, 128>::run(d, kUpper | (left + 2 * step), kUpper | (right + 2 * step), step > 0);
    }
}

// Multiplies all blocks of k of a pass: 64 tokens by 128 weights and, if two is set, another 64 tokens. Addresses are
// computed from the address of the storage, to save registers. inputs is the descriptor of the tokens of the first
// stage; own is the address of a lane's scales in that stage.
template <class S>
__device__ __forceinline__ void multiply_wide(float (&first)[64], float (&second)[64], u32 storage, i32 blocks,
                                              Cursor& ring, u32 two, u32 inputs, u32 own) {
    using Layout = Storage<S>;
    constexpr u32 kInput = sizeof(Layout::inputs[0]), kWeight = sizeof(Layout::weights[0]),
                  kScale = sizeof(Layout::scales[0]);
    for (i32 block = 0; block < blocks; ++block) {
        const u32 stage = ring.stage;
        ptx::barrier_wait(storage + Layout::kFull + 8 * stage, ring.parity);
        ptx::fence_async_proxy();
        ring.advance(S::Stages);
        const u32 left = inputs + stage * (kInput >> 4),
                  right = static_cast<u32>(ptx::operand_128b(storage)) + stage % S::Widened * (kWeight >> 4);
        const auto multiply = [&](float(&sum)[64], u32 tokens, auto between) {
            float d[64];
            ptx::mma_pin(d);
            ptx::mma_fence();
            multiply_words(d, left + tokens * (kBlockBytes >> 4), right);
            ptx::mma_commit();
            const float2 halves = ptx::load_pair(storage + Layout::kScales + stage * kScale +
                                                 4 * S::MaxTokens);
            const float upper = ptx::load_float(own + stage * kScale + 4 * tokens),
                        lower = ptx::load_float(own + stage * kScale + 4 * tokens + 32);
            ptx::mma_wait<0>();
            ptx::mma_pin(d);
            between();
            promote_wide(sum, d, halves, upper, lower);
        };
        const auto release = [&] { arrive_warp(storage + Layout::kEmpty + 8 * stage); };
        if (two != 0) {
            multiply(first, 0, [] {});
            multiply(second, 128, release);
        } else {
            multiply(first, 0, release);
        }
    }
}

// Loads two floats that this thread has written. The loads are volatile, so that they are issued in order and take
// few registers.
__device__ __forceinline__ void load_kept(float& a, float& b, const float* from) {
    asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(a), "=f"(b) : "l"(from) : "memory");
}

// The memory in which a lane keeps activations of 128 inner columns for its two of a warp's 16 tokens, and whether
// these two tokens exist. `token` is the first of the 16.
struct Kept {
    float* at;
    bool valid[2];

    __device__ __forceinline__ Kept(const ExpertsArgs& args, const Item& item, i32 token, u32 lane) {
        const i32 own = token + static_cast<i32>(lane / 4);
        at = reinterpret_cast<float*>(args.results) +
             (static_cast<i64>(item.first) * args.inner_tiles + item.tile * item.count + own) * 128 + lane % 4 * 2;
        valid[0] = own < item.count;
        valid[1] = own + 8 < item.count;
    }
    // Returns the address of element i of the accumulators.
    __device__ __forceinline__ float* place(int i) const { return at + i / 2 % 2 * 8 * 128 + i / 4 * 8; }
};

// Gate and up: stores the activations of 64 inner columns (pass `half`) to the memory of Kept.
__device__ __forceinline__ void keep_gated(const Kept& kept, const float (&sum)[64], i32 half, float limit) {
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
        if (kept.valid[i / 2 % 2]) {
            *reinterpret_cast<float2*>(kept.place(i) + 64 * half) =
                make_float2(gated(sum[i], sum[32 + i], limit), gated(sum[i + 1], sum[33 + i], limit));
        }
    }
}

// Gate and up: reads the stored activations of both passes, quantises them and writes them to inner.
template <class S>
__device__ __forceinline__ void write_kept(const ExpertsArgs& args, const Item& item, const Kept& kept, i32 token,
                                           u32 staged, u32 lane) {
    float sum[64];
#pragma unroll
    for (int i = 0; i < 64; i += 2) {
        sum[i] = sum[i + 1] = 0;
        if (kept.valid[i / 2 % 2]) {
            load_kept(sum[i], sum[i + 1], kept.place(i));
        }
    }
    write_inner_rows<S>(args, item, sum, token, staged, lane);
}

// Values that a math warp needs between the products of an item. They are read again after each product, because
// there are not enough registers.
struct Between {
    Item item;       // the field expert holds the pass: half 0 or 1 of the weight tile
    u32 lane, warp;  // warp: 0 to 7 of the math warps
    i32 token;       // the warp's first token; its second 16 tokens start 128 later
    u32 staged;

    template <class S>
    __device__ __forceinline__ explicit Between(Storage<S>& shared) {
        u32 t;
        asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t)::"memory");
        lane = t % 32;
        warp = t / 32;
        token = static_cast<i32>(16 * warp);
        staged = ptx::shared_address(shared.staged[0]) + warp * 16 * kRowPitch;
        const uint4 v = ptx::load_vector(ptx::shared_address(&shared.parked[warp]));
        item = Item{static_cast<i32>(v.x), static_cast<i32>(v.y), static_cast<i32>(v.z), static_cast<i32>(v.w)};
    }
};

template <class S>
__device__ __forceinline__ void run_wide(const ExpertsArgs& args, Storage<S>& shared, i32 blocks, Cursor& ring) {
    u32 two, inputs, own, base = ptx::shared_address(&shared);
    {
        const Between at(shared);
        const u32 group = at.warp / 4;
        two = at.item.count > 128 + 64 * static_cast<i32>(group);
        inputs = static_cast<u32>(ptx::operand_128b(base + Storage<S>::kInputs + group * kOperandBytes));
        own = base + Storage<S>::kScales + (16 * at.warp + at.lane / 4) * 4;
    }
    asm volatile("" : "+r"(two), "+r"(base), "+r"(inputs), "+r"(own));  // kept in registers, not computed again
    if constexpr (S::kStep == Step::kDown) {
        const Between at(shared);
        const i32 own = at.token + static_cast<i32>(at.lane % 16 + at.lane / 16 * 128);
        if (own < at.item.count) {
            copy_4(&shared.pairs[at.warp][at.lane], args.order + at.item.first + own);
        }
        ptx::copies_commit();
    }
#pragma unroll 1
    for (bool more = true; more;) {
        float first[64], second[64];
#pragma unroll
        for (int i = 0; i < 64; ++i) {
            first[i] = second[i] = 0;
        }
        multiply_wide<S>(first, second, base, blocks, ring, two, inputs, own);
        const Between at(shared);
        const i32 half = at.item.expert;
        if constexpr (S::kStep == Step::kGateUp) {
            keep_gated(Kept(args, at.item, at.token, at.lane), first, half, args.limit);
            keep_gated(Kept(args, at.item, at.token + 128, at.lane), second, half, args.limit);
        } else {
            ptx::copies_wait<0>();
            __syncwarp();
            const i32 column = at.item.tile * kTileRows + 64 * half;
            const i32* pairs = shared.pairs[at.warp];
            write_result_rows(args, at.item, first, pairs, column, 128, at.token, at.staged, at.lane);
            write_result_rows(args, at.item, second, pairs + 16, column, 128, at.token + 128, at.staged, at.lane);
        }
        more = half == 0;
        __syncwarp();
        if (at.lane == 0) {
            shared.parked[at.warp].x = 1;
        }
        __syncwarp();
    }
    if constexpr (S::kStep == Step::kGateUp) {
        const Between at(shared);
#pragma unroll 1
        for (i32 token = at.token; token < at.item.count && token <= at.token + 128; token += 128) {
            write_kept<S>(args, at.item, Kept(args, at.item, token, at.lane), token, at.staged, at.lane);
        }
    }
}

template <class S>
__device__ void multiply_wide_experts(const ExpertsArgs& args) {
    Storage<S>& shared = storage<S>();
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::Stages; ++i) {
            // Arrivals of the copy threads and of the widening warps.
            ptx::barrier_init(ptx::shared_address(&shared.full[i]), 128 + 4);
            ptx::barrier_init(ptx::shared_address(&shared.empty[i]), 4 * kGroups);
            ptx::barrier_init(ptx::shared_address(&shared.arrived[i]), 1);
        }
        ptx::barrier_init_fence();
    }
    if constexpr (S::kStep == Step::kGateUp) {
        ptx::wait_for_previous_kernel();
    }
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
    __syncthreads();
    const u32 group = __shfl_sync(ptx::kFullMask, threadIdx.x / 128, 0);
    if (group == kGroups) {
        ptx::registers_shrink<S::CopyRegisters>();
        feed_wide<S>(args, shared);
        ptx::release_next_kernel();
    } else if (group > kGroups) {
        ptx::registers_shrink<S::FoldRegisters>();
        fold_wide<S>(args, shared);
    } else {
        ptx::registers_grow<S::MathRegisters>();
        const bool gate_up = S::kStep == Step::kGateUp;
        const i32 blocks = gate_up ? args.hidden_blocks : args.inner_blocks;
        const i32 tiles = gate_up ? args.inner_tiles : args.hidden_tiles;
        Walk<S> walk;
        Cursor ring;
        Item item;
        while (walk.next(shared, tiles, item)) {
            const u32 warp = threadIdx.x / 32;
            __syncwarp();
            if (threadIdx.x % 32 == 0) {
                shared.parked[warp] = make_uint4(0, item.tile, item.first, item.count);
                shared.walked[warp] = make_uint2(walk.at, walk.item);
            }
            __syncwarp();
            run_wide<S>(args, shared, blocks, ring);
            const uint2 v = load_codes(ptx::shared_address(&shared.walked[warp]));
            walk.at = static_cast<i32>(v.x);
            walk.item = static_cast<i32>(v.y);
        }
    }
}

}  // namespace sparrow_experts
