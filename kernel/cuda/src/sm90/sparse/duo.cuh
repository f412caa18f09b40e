// Few rows: two thread blocks, a cluster, share one unit of work, so that it takes half as long.
//
// Each has half of the output columns. Blocks of keys alternate between them: the one whose turn it is fetches the whole block, computes its scores and
// weights and sends them to the other; for the other's blocks it fetches the columns it has to multiply, nothing else. Every output element is the
// same chain of products as in one thread block, and exponents and sums pass from block to block in order: the bits are those of kernel.cuh.
//
// In:    as kernel.cuh, rows of one stream and nine tiles, cut into segments.
// Out:   parts of segments for combine.cuh.
// Block: a cluster of two per unit. One warpgroup computes scores and weights of its own blocks, one the products of all blocks, two fetch rows. So
//        many threads have too few registers at launch for products of 256 columns: they are done in halves.
// Bytes: every selected row is read once per 64 heads, and half of it again.
// H200:  128 heads, top-k 2048: one row
#pragma once

#include "ptx/peer.cuh"
#include "ptx/wgmma_narrow.cuh"
#include "sm90/sparse/convert.cuh"
#include "sm90/sparse/softmax.cuh"

namespace sparrow_sparse {

// Per lane of the score group: its parts of the sums of a block, and what the block multiplies the output so far by.
struct LaneSums {
    float t0, t1, f0, f1;
};

// Shared memory of one of the two. Own: of the blocks whose turn is its own. Weights of own blocks take the place of the rotary tile.
struct DuoStorage {
    static constexpr int kTiles = 9;
    u8 q[kTiles * kTileBytes];
    u8 k[kTiles * kTileBytes];             // an own block
    u8 v[2][kHalfTiles * kTileBytes];      // own columns of the other's blocks
    u8 weights[kTileBytes];                // of one of the other's blocks
    LaneSums sums[128];                    // of the same
    LaneSums own_sums[128];                // of an own block
    float base[kHeads], largest[kHeads];   // from the other: what its block's exponents are relative to; its largest scores
    float final[kHeads];
    u64 valid;  // of an own block
    // Filled and freed: queries; both halves of an own block; own columns; weights and sums, own and the other's.
    u64 q_full, k_full[2], left_free, v_full[2], v_free[2];
    u64 own_full, own_free, other_full;
    u64 base_full, largest_full, final_full;

    __device__ __forceinline__ u32 own_weights() { return ptx::shared_address(k) + 8 * kTileBytes; }
};

constexpr u32 duo_shared_bytes() { return sizeof(DuoStorage) + 1024; }

__device__ __forceinline__ DuoStorage& duo_storage() {
    static_assert(duo_shared_bytes() <= 232448, "more shared memory than a Hopper block can have");
    extern __shared__ u8 dynamic_shared[];
    const u32 misaligned = ptx::shared_address(dynamic_shared) % 1024;
    return *reinterpret_cast<DuoStorage*>(dynamic_shared + (misaligned ? 1024 - misaligned : 0));
}

// The unit of a cluster, and which of the two this thread block is.
struct DuoUnit {
    i32 row, head, segment, block, blocks, keys;
    u32 rank;

    __device__ __forceinline__ DuoUnit(const SparseAttendArgs& args) {
        const u32 u = blockIdx.x / 2;
        rank = blockIdx.x % 2;
        row = row_of(args, u);
        head = head_of(args, u);
        segment = static_cast<i32>(u % static_cast<u32>(args.segments));
        block = segment * args.segment_blocks;
        keys = 0;
        blocks = 0;
    }
    // Called when the launch before has ended.
    __device__ __forceinline__ void measure(const SparseAttendArgs& args) {
        const SelectionView& s = args.streams[0];
        keys = clipped(s, s.lens[row * s.len_stride]);
        blocks = max(min((keys + kKeys - 1) / kKeys - block, args.segment_blocks), 0);
    }
    __device__ __forceinline__ bool own(i32 n) const { return (static_cast<u32>(n) & 1) == rank; }
    __device__ __forceinline__ i32 column() const { return static_cast<i32>(rank) * kHalfColumns; }
};

// Threads that fetch, threads of a block, and registers of a thread of each warpgroup, which together are those of the launch at most.
constexpr int kDuoFetchers = 256, kDuoThreads = 256 + kDuoFetchers;
constexpr int kDuoScoreRegisters = 96, kDuoValueRegisters = 168, kDuoFetchRegisters = 120;
static_assert(kDuoScoreRegisters + kDuoValueRegisters + 2 * kDuoFetchRegisters <= 4 * 128, "more registers than the launch got");

constexpr u32 kBaseBytes = kHeads * sizeof(float);
constexpr u32 kWeightBytes = kTileBytes + 128 * sizeof(LaneSums);

__device__ __forceinline__ void duo_init(DuoStorage& shared) {
    constexpr u32 kWarps = 4, kGroup = 128, kFetchers = kDuoFetchers;
    const auto init = [](u64& b, u32 n) { ptx::barrier_init(ptx::shared_address(&b), n); };
    init(shared.q_full, kFetchers);
    init(shared.left_free, kWarps);
    for (int i = 0; i < 2; ++i) {
        init(shared.k_full[i], kFetchers);
        init(shared.v_full[i], kFetchers);
        init(shared.v_free[i], kWarps);
    }
    init(shared.own_full, kGroup);
    init(shared.own_free, 3 * kWarps);  // the value group, both groups of the other block
    init(shared.other_full, 1);
    init(shared.base_full, 1);
    init(shared.largest_full, 1);
    init(shared.final_full, kGroup);
    // What the other sends first.
    ptx::barrier_expect(ptx::shared_address(&shared.other_full), kWeightBytes);
    ptx::barrier_expect(ptx::shared_address(&shared.base_full), kBaseBytes);
    ptx::barrier_expect(ptx::shared_address(&shared.largest_full), kBaseBytes);
    ptx::barrier_init_fence();
}

// One arrival per warp at the same barrier of the other block, after what all its lanes have read.
__device__ __forceinline__ void arrive_at_other(u64& barrier, u32 rank) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        ptx::peer_arrive(ptx::peer_address(ptx::shared_address(&barrier), rank ^ 1));
    }
}

// The fetching warps: left halves of all blocks for thread block 0, right halves for thread block 1, and the other halves of own blocks.
template <class Rows>
struct DuoFetch {
    using Block = Coming<false, true>;
    const SparseAttendArgs& args;
    DuoStorage& shared;
    const DuoUnit& unit;
    u32 t;

    // Block n, whose list is on its way.
    __device__ __forceinline__ Block block(i32 n) const {
        Block c;
        const SelectionView& s = args.streams[0];
        const i32 position = (unit.block + n) * kKeys + Block::own_key(t);
        if (n < unit.blocks && position < unit.keys) {
            c.slot = s.indices[unit.row * s.index_stride + position];
        }
        return c;
    }

    __device__ __forceinline__ bool left(i32 n) const { return unit.own(n) || unit.rank == 0; }
    __device__ __forceinline__ bool right(i32 n) const { return unit.own(n) || unit.rank == 1; }

    // Asks for what is needed of block n.
    __device__ __forceinline__ void ask(Rows& rows, const Block& c, i32 n, u32 after) const {
        if (left(n)) {
            rows.template ask<true>(args, c, t, after);
        }
        if (right(n)) {
            rows.template ask<false>(args, c, t, after);
        }
    }

    // Converts block n, which have holds or is about to, and asks for the next one.
    __device__ __forceinline__ void step(Rows& have, Rows& get, i32 n, Block& now, Block& next) {
        asm volatile("" : "+r"(t));  // addresses are worked out again for every block
        const bool own = unit.own(n);
        const u32 i = static_cast<u32>(n) >> 1, j = i & 1;  // own blocks, or the other's, before this; the buffer of the latter
        const u32 own_parity = (i & 1) ^ 1, other_parity = (i >> 1 & 1) ^ 1;
        const u32 k = ptx::shared_address(shared.k), v = ptx::shared_address(shared.v[j]);
        next.settle(args);
        ask(get, next, n + 1, have.template arrived<true>(args) | have.template arrived<false>(args));
        const u32 mask = now.mask();
        now = next;
        next = block(n + 2);
        if (left(n)) {
            ptx::barrier_wait(ptx::shared_address(own ? &shared.left_free : &shared.v_free[j]), own ? own_parity : other_parity);
            if (own && t % 32 == 0) {
                reinterpret_cast<u8*>(&shared.valid)[t / 32] = static_cast<u8>(mask);
            }
            have.template store_row<true>(own ? k : v, 0, t);
            ptx::barrier_arrive(ptx::shared_address(own ? &shared.k_full[0] : &shared.v_full[j]));
        }
        if (n == 0) {
            Queries<Rows>::convert(shared, t);
        }
        if (right(n)) {
            if (own) {
                ptx::barrier_wait_cluster(ptx::shared_address(&shared.own_free), own_parity);
            } else {
                ptx::barrier_wait(ptx::shared_address(&shared.v_free[j]), other_parity);
            }
            have.template store_row<false>(own ? k : v - kHalfTiles * kTileBytes, 0, t, own);
            ptx::barrier_arrive(ptx::shared_address(own ? &shared.k_full[1] : &shared.v_full[j]));
        }
    }

    __device__ __forceinline__ void run() {
        static_assert(Rows::kRows == 1, "a thread has one row of a block");
        Rows even, odd;
        Block now = block(0), next = block(1);
        now.settle(args);
        even.clear();
        odd.clear();
        ask(even, now, 0, 0);
        Queries<Rows>::ask(args, shared, unit.row, unit.head, t);
#pragma unroll 1
        for (i32 n = 0; n < unit.blocks; n += 2) {
            step(even, odd, n, now, next);
            if (n + 1 < unit.blocks) {
                step(odd, even, n + 1, now, next);
            }
        }
    }
};

// The score group: scores and weights of own blocks.
template <class Rows>
struct DuoScores : Softmax<typename Rows::Type> {
    using Type = typename Rows::Type;
    using Base = Softmax<Type>;
    using Base::args, Base::at, Base::m0, Base::m1, Base::max0, Base::max1, Base::sum0, Base::sum1;
    DuoStorage& shared;
    const DuoUnit& unit;

    __device__ __forceinline__ DuoScores(const SparseAttendArgs& a, DuoStorage& s, const DuoUnit& u) : Base(a), shared(s), unit(u) {}

    template <int From, int To>
    __device__ __forceinline__ void multiply_part(float (&s)[32]) const {
        const u64 q = ptx::operand_128b(ptx::shared_address(shared.q)), k = ptx::operand_128b(ptx::shared_address(shared.k));
#pragma unroll
        for (int i = From * 4; i < To * 4; ++i) {
            const u64 step = (i / 4 * kTileBytes + i % 4 * 32) / 16;
            if (i / 4 < Rows::Tiles - Rows::kBf16Tiles) {
                Type::multiply_64(s, q + step, k + step, i != 0);
            } else {
                ptx::Bf16::multiply_64(s, q + step, k + step, i != 0);
            }
        }
        ptx::mma_commit();
    }

    __device__ __forceinline__ u32 other(const void* p) const { return ptx::peer_address(ptx::shared_address(p), unit.rank ^ 1); }

    // Two numbers of this lane's heads to the other block.
    __device__ __forceinline__ void send_heads(float* place, u64& barrier, float a, float b) const {
        __syncwarp();  // the other may answer at once, and the answer takes the place of what lanes here have read
        if (at.lane % 4 == 0) {
            ptx::peer_send(other(place + at.row), __float_as_uint(a), other(&barrier));
            ptx::peer_send(other(place + at.row + 8), __float_as_uint(b), other(&barrier));
        }
    }

    // Adds the sums of the other's block n.
    __device__ __forceinline__ void add_other(i32 n) {
        ptx::barrier_wait(ptx::shared_address(&shared.other_full), n >> 1 & 1);
        const LaneSums v = *const_cast<const LaneSums*>(&shared.sums[threadIdx.x % 128]);
        sum0 = fmaf(sum0, v.f0, v.t0);
        sum1 = fmaf(sum1, v.f1, v.t1);
        arrive_at_other(shared.own_free, unit.rank);
    }

    // Weights, sums and factors of own block to both value groups.
    __device__ __forceinline__ void publish(const u32 (&p)[4][4], const LaneSums& sums) {
        const u32 t = threadIdx.x % 128;
        ptx::group_sync<1, 128>();  // the weights take the place of keys that other warps' scores may still read
        const u32 row = at.warp * 16 + at.lane % 16, base = shared.own_weights();
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            ptx::store_fragments(base + tile_byte(row, 2 * j + at.lane / 16), p[j]);
        }
        shared.own_sums[t] = sums;
        ptx::fence_async_proxy();
        ptx::barrier_arrive(ptx::shared_address(&shared.own_full));
        const u32 bar = other(&shared.other_full);
        ptx::peer_send(other(&shared.sums[t]), make_uint4(__float_as_uint(sums.t0), __float_as_uint(sums.t1), __float_as_uint(sums.f0), __float_as_uint(sums.f1)), bar);
        __syncwarp();
        if (at.lane == 0) {
            const u32 piece = at.warp * 16 * 128;
            ptx::peer_copy(other(shared.weights) + piece, base + piece, 16 * 128, bar);
        }
    }

    __device__ __forceinline__ void run() {
        m0 = m1 = max0 = max1 = kLowest;
        sum0 = sum1 = 0.0f;
        float s[32];
        u32 p[4][4];
        ptx::barrier_wait(ptx::shared_address(&shared.q_full), 0);
#pragma unroll 1
        for (i32 n = static_cast<i32>(unit.rank); n < unit.blocks; n += 2) {
            const u32 parity = static_cast<u32>(n) >> 1 & 1;
            ptx::barrier_wait(ptx::shared_address(&shared.k_full[0]), parity);
            ptx::fence_async_proxy();
            ptx::mma_pin(s);
            ptx::mma_fence();
            multiply_part<0, kHalfTiles>(s);
            ptx::barrier_wait(ptx::shared_address(&shared.k_full[1]), parity);
            ptx::fence_async_proxy();
            ptx::mma_fence();
            multiply_part<kHalfTiles, Rows::Tiles>(s);
            u64 valid = 0;
            if (at.lane == 0) {
                valid = *const_cast<const volatile u64*>(&shared.valid);
            }
            valid = __shfl_sync(ptx::kFullMask, valid, 0);
            ptx::mma_wait<0>();
            ptx::mma_pin(s);
            if (unit.rank == 1) {
                arrive(shared.left_free);
            }
            if (n > 0) {  // the other has had the block before
                ptx::barrier_wait(ptx::shared_address(&shared.base_full), (static_cast<u32>(n) - 1) >> 1 & 1);
                m0 = *const_cast<const volatile float*>(&shared.base[at.row]);
                m1 = *const_cast<const volatile float*>(&shared.base[at.row + 8]);
                if (threadIdx.x % 128 == 0 && n + 1 < unit.blocks) {
                    ptx::barrier_expect(ptx::shared_address(&shared.base_full), kBaseBytes);
                }
            }
            LaneSums sums;
            this->rebase(s, valid, sums.f0, sums.f1);
            send_heads(shared.base, shared.base_full, m0, m1);
            sums.t0 = sums.t1 = 0.0f;
            this->template weigh_keys<0>(s, p[0], sums.t0, sums.t1);
            this->template weigh_keys<1>(s, p[1], sums.t0, sums.t1);
            this->template weigh_keys<2>(s, p[2], sums.t0, sums.t1);
            this->template weigh_keys<3>(s, p[3], sums.t0, sums.t1);
            publish(p, sums);
            if (n > 0) {
                add_other(n - 1);
            }
            sum0 = fmaf(sum0, sums.f0, sums.t0);
            sum1 = fmaf(sum1, sums.f1, sums.t1);
        }
        if (!unit.own(unit.blocks - 1)) {
            ptx::barrier_wait(ptx::shared_address(&shared.base_full), (static_cast<u32>(unit.blocks) - 1) >> 1 & 1);
            m0 = *const_cast<const volatile float*>(&shared.base[at.row]);
            m1 = *const_cast<const volatile float*>(&shared.base[at.row + 8]);
            add_other(unit.blocks - 1);
        }
        this->gather();
        finish();
    }

    // The end of the segment: what the output is multiplied by, and the numbers beside the parts.
    __device__ __forceinline__ void finish() {
        if (at.lane % 4 == 0) {
            shared.final[at.row] = sum0 > 0.0f ? 1.0f / sum0 : 0.0f;
            shared.final[at.row + 8] = sum1 > 0.0f ? 1.0f / sum1 : 0.0f;
        }
        ptx::barrier_arrive(ptx::shared_address(&shared.final_full));
        if (unit.rank == 1) {
            send_heads(shared.largest, shared.largest_full, max0, max1);
            return;
        }
        ptx::barrier_wait(ptx::shared_address(&shared.largest_full), 0);
        if (at.lane % 4 == 0) {
            save(unit.head + at.row, m0, fmaxf(max0, *const_cast<const volatile float*>(&shared.largest[at.row])), sum0);
            save(unit.head + at.row + 8, m1, fmaxf(max1, *const_cast<const volatile float*>(&shared.largest[at.row + 8])), sum1);
        }
    }

    __device__ __forceinline__ void save(i32 head, float m, float largest, float sum) const {
        if (head < args.heads) {
            float* dst = args.stats + ((static_cast<i64>(unit.row) * args.segments + unit.segment) * args.heads + head) * 4;
            *reinterpret_cast<float4*>(dst) = make_float4(m, sum, largest, 0.0f);
        }
    }
};

// The value group: this block's columns of all blocks of keys.
template <class Rows>
struct DuoValues {
    using Type = typename Rows::Type;
    const SparseAttendArgs& args;
    DuoStorage& shared;
    const DuoUnit& unit;
    Corner at;

    __device__ __forceinline__ DuoValues(const SparseAttendArgs& a, DuoStorage& s, const DuoUnit& u) : args(a), shared(s), unit(u) {}

    // Asks the rows of own blocks into L2.
    __device__ __forceinline__ void scout() const {
        constexpr u32 kLine = 128;
        const SelectionView& s = args.streams[0];
        const u32 t = threadIdx.x % 128;
#pragma unroll 4
        for (i32 n = static_cast<i32>(unit.rank); n < unit.blocks; n += 2) {
            const i32 position = (unit.block + n) * kKeys + static_cast<i32>(t / 2);
            const i32 slot = position < unit.keys ? s.indices[unit.row * s.index_stride + position] : -1;
            if (slot >= 0 && slot < s.slots) {
                const u8* row = page_of(s, slot) + (slot & s.page_mask) * Rows::kRowBytes;
#pragma unroll
                for (u32 i = 0; i < (Rows::kRowBytes + 2 * kLine - 1) / (2 * kLine); ++i) {
                    ptx::prefetch_line(row + min((2 * i + t % 2) * kLine, static_cast<u32>(Rows::kRowBytes - 16)));
                }
            }
        }
    }

    __device__ __forceinline__ void run() {
        scout();
        float o[128];
        declare(o);
#pragma unroll 1
        for (i32 n = 0; n < unit.blocks; ++n) {
            const bool own = unit.own(n);
            const u32 i = static_cast<u32>(n) >> 1, j = i & 1;
            ptx::barrier_wait(ptx::shared_address(own ? &shared.own_full : &shared.other_full), i & 1);
            if (own) {
                ptx::barrier_wait(ptx::shared_address(&shared.k_full[unit.rank]), i & 1);
            } else {
                if (threadIdx.x % 128 == 0 && n + 2 < unit.blocks) {
                    ptx::barrier_expect(ptx::shared_address(&shared.other_full), kWeightBytes);
                }
                ptx::barrier_wait(ptx::shared_address(&shared.v_full[j]), i >> 1 & 1);
            }
            ptx::fence_async_proxy();
            const LaneSums* sums = (own ? shared.own_sums : shared.sums) + threadIdx.x % 128;
            const float f0 = *const_cast<const volatile float*>(&sums->f0), f1 = *const_cast<const volatile float*>(&sums->f1);
            if (n > 0 && __any_sync(ptx::kFullMask, f0 != 1.0f || f1 != 1.0f)) {
                rescale(o, f0, f1);
            }
            const u64 p = ptx::operand_128b(own ? shared.own_weights() : ptx::shared_address(shared.weights));
            const u64 v = ptx::operand_128b_across(own ? ptx::shared_address(shared.k) + unit.rank * kHalfTiles * kTileBytes : ptx::shared_address(shared.v[j]), kTileBytes);
            ptx::mma_pin(o);
            ptx::mma_fence();
#pragma unroll
            for (int step = 0; step < 4; ++step) {
                ptx::multiply_f16_128<0>(o, p + step * 2, v + step * 16 * 128 / 16, step > 0 || n > 0);
                ptx::multiply_f16_128<64>(o, p + step * 2, v + 2 * kTileBytes / 16 + step * 16 * 128 / 16, step > 0 || n > 0);
            }
            ptx::mma_commit();
            ptx::mma_wait<0>();
            ptx::mma_pin(o);
            if (own) {
                if (unit.rank == 0) {
                    arrive(shared.left_free);
                }
                arrive(shared.own_free);
            } else {
                arrive(shared.v_free[j]);
                arrive_at_other(shared.own_free, unit.rank);
            }
        }
        ptx::barrier_wait(ptx::shared_address(&shared.final_full), 0);
        const float f0 = *const_cast<const volatile float*>(&shared.final[at.row]), f1 = *const_cast<const volatile float*>(&shared.final[at.row + 8]);
        write_part<Type>(Parts<Type>::at(args, unit.row, unit.segment, unit.head, unit.column()), o, f0, f1);
    }
};

// Asks into L2 for what is needed whatever the length of the row: its list and its queries.
__device__ __forceinline__ void ask_first(const SparseAttendArgs& args, const DuoUnit& unit, u32 t) {
    constexpr i32 kLine = 128, kQueryBytes = DuoStorage::kTiles * 128;
    const SelectionView& s = args.streams[0];
    const i32 position = unit.block * kKeys + static_cast<i32>(t) * (kLine / 4);
    if (position < min(s.width, (unit.block + args.segment_blocks) * kKeys)) {
        ptx::prefetch_line(s.indices + unit.row * s.index_stride + position);
    }
    const u8* q = reinterpret_cast<const u8*>(args.q + unit.row * args.q_stride) + static_cast<i64>(unit.head) * kQueryBytes;
    const i32 bytes = min(args.heads - unit.head, kHeads) * kQueryBytes;
    for (i32 at = static_cast<i32>(t) * kLine; at < bytes; at += kDuoFetchers * kLine) {
        ptx::prefetch_line(q + at);
    }
}

template <class Format>
__device__ void attend_duo(const SparseAttendArgs& args) {
    using Rows = ConvertedRows<Format, kDuoFetchers>;
    DuoStorage& shared = duo_storage();
    if (threadIdx.x == 0) {
        duo_init(shared);
    }
    ptx::cluster_sync();
    ptx::wait_for_previous_kernel();
    DuoUnit unit(args);
    const u32 group = __shfl_sync(ptx::kFullMask, threadIdx.x / 128, 0);
    if (group >= 2) {
        ask_first(args, unit, threadIdx.x - 256);
    }
    unit.measure(args);
    if (unit.blocks == 0) {  // the combine looks only at segments that have keys
    } else if (group == 0) {
        ptx::registers_shrink<kDuoScoreRegisters>();
        DuoScores<Rows>(args, shared, unit).run();
    } else if (group == 1) {
        ptx::registers_grow<kDuoValueRegisters>();
        DuoValues<Rows>(args, shared, unit).run();
    } else {
        ptx::registers_shrink<kDuoFetchRegisters>();
        DuoFetch<Rows>{args, shared, unit, threadIdx.x - 256}.run();
        ptx::release_next_kernel();
    }
    __syncwarp();
    ptx::cluster_sync();  // nobody goes while the other may still store into its memory
}

}  // namespace sparrow_sparse
