// The output of a sublayer for many rows: adds the output to four residual streams (smxx/hyper/post.cuh,
// smxx/quant/norm.cuh) and multiplies the streams by the matrix of the next sublayer (sm90/product/many.cuh). The
// streams are not read again for the product. The results are bitwise equal to those of the separate kernels.
//
// In, out: args.h. hidden is a multiple of 128, at least 512.
// Block: one per SM, with 64 rows. Sixteen warps add the output, 64 columns of each stream at a time. They write the
//        new streams to memory and, in the form of operands, to a ring of stages in shared memory. A warpgroup
//        multiplies the four blocks of k of a stage; the copy engine loads the weights of a stage.
// Bits:  k has eight parts, two for each stream. The sums of the four parts of the first halves of the streams are kept
//        in shared memory, and all parts are added in order.
// Bytes: the streams are read and written, the output of the sublayer (or the results of its experts) is read. A block
//        reads the whole matrix from L2, 786 KB for hidden = 4096.
#pragma once

#include "sm90/hyper/args.h"
#include "sm90/hyper/summed.cuh"
#include "sm90/tile.cuh"
#include "smxx/hyper/mix.cuh"

namespace sparrow_hyper {

using namespace sparrow_tile;

constexpr int kTileRows = 64;     // rows of a block
constexpr int kTileColumns = 32;  // columns of the product, of which at least 24 exist
constexpr int kTileStages = 3;
constexpr int kAddWarps = 16;
constexpr int kManyThreads = 32 * kAddWarps + 128;
constexpr u32 kTileStream = kTileRows * kBlockBytes, kTileWeight = kTileColumns * kBlockBytes; // of a block of k
constexpr u32 kTileStage = kFour * (kTileStream + kTileWeight);

// Shared memory after the stages.
struct ManyRest {
    f32 kept[kFour * kTileColumns / 2][128]; // sums of the first four parts, of each thread that multiplies
    f32 weights[kTileRows][kFour + kFour * kFour]; // of a row: post, then comb
    RowChoices choices[kTileRows];
    u64 full[kTileStages], empty[kTileStages];
};

constexpr u32 kManyShared = 1024 + kTileStages * kTileStage + sizeof(ManyRest);
static_assert(kManyShared <= kSharedLimit, "more shared memory than a Hopper block can have");

struct ManyPlaces {
    u32 base;
    ManyRest* rest;

    DEVICE ManyPlaces() {
        extern __shared__ u8 dynamic_shared[];
        const u32 start = ptx::shared_address(dynamic_shared);
        base = (start + 1023) / 1024 * 1024;
        rest = reinterpret_cast<ManyRest*>(dynamic_shared + (base - start) + kTileStages * kTileStage);
    }
    DEVICE u32 streams(u32 stage, u32 i) const { return base + stage * kTileStage + i * kTileStream; }
    DEVICE u32 weights(u32 stage, u32 i) const { return streams(stage, kFour) + i * kTileWeight; }
    DEVICE u32 full(u32 stage) const { return ptx::shared_address(&rest->full[stage]); }
    DEVICE u32 empty(u32 stage) const { return ptx::shared_address(&rest->empty[stage]); }
};

// A thread that adds the output: eight columns of every block of 64 columns, of one row.
template <bool Experts> struct Adder {
    const HyperManyArgs& args;
    const ManyPlaces& at;
    const i32 slot = threadIdx.x / 8, chunk = threadIdx.x % 8; // slot: number of the row in the block
    const i64 row = static_cast<i64>(blockIdx.x) * kTileRows + slot;
    const bool exists = row < args.add.post.rows;
    u16* const x = args.add.post.x + row * args.add.post.x_stride;

    // The values of eight columns as stored in memory.
    struct Piece {
        uint4 old[kFour], sub;
    };

    DEVICE Adder(const HyperManyArgs& a, const ManyPlaces& p) : args(a), at(p) {}

    // Loads the weights and the choices of the rows of the warp to shared memory.
    DEVICE void begin() {
        const HyperPostArgs& a = args.add.post;
        f32* weights = at.rest->weights[slot];
        for (i32 i = chunk; exists && i < kFour + kFour * kFour; i += 8) {
            weights[i] = i < kFour ? a.post[row * a.post_stride + i] : a.comb[row * a.comb_stride + i - kFour];
        }
        if constexpr (Experts) {
            for (i32 i = 0; i < 4; i++) {
                const i32 one = slot / 4 * 4 + i;
                const i64 own = static_cast<i64>(blockIdx.x) * kTileRows + one;
                if (own < a.rows) load_warp_choices(args.add.sum, own, at.rest->choices[one]);
            }
        }
        __syncwarp();
    }

    DEVICE void load_streams(Piece& p, i32 column) const {
#pragma unroll
        for (int i = 0; i < kFour; i++) {
            p.old[i] = exists ? *reinterpret_cast<const uint4*>(x + static_cast<i64>(i) * args.add.post.hidden + column)
                              : make_uint4(0, 0, 0, 0);
        }
    }

    DEVICE Piece load(i32 column) const {
        const HyperPostArgs& a = args.add.post;
        Piece p;
        load_streams(p, column);
        p.sub = exists ? *reinterpret_cast<const uint4*>(a.sub + row * a.sub_stride + column) : make_uint4(0, 0, 0, 0);
        return p;
    }

    // As load, with the results of experts. They are loaded before the streams, because there are not enough registers
    // for both.
    DEVICE Piece load_summed(i32 column) const {
        const NormQuantiseArgs& s = args.add.sum;
        Piece p;
        p.sub = make_uint4(0, 0, 0, 0);
        if (exists) {
            const uint4 sub = *reinterpret_cast<const uint4*>(s.x + row * s.x_stride + column);
            p.sub = summed_output<4>(s, at.rest->choices[slot], sub, row, column);
        }
        load_streams(p, column);
        return p;
    }

    // Adds the output in eight columns, and writes the new streams to memory and to a stage.
    DEVICE void add(const Piece& p, i32 column, const Cursor& ring) const {
        const f32 *post = at.rest->weights[slot], *comb = post + kFour; // comb: four rows of four
        f32 o[8];
        unpack_8(p.sub, o);
        uint4 out[kFour];
#pragma unroll
        for (int k = 0; k < kFour; k++) {
            f32 sum[8];
#pragma unroll
            for (int e = 0; e < 8; e++) sum[e] = __fmul_rn(post[k], o[e]);
#pragma unroll
            for (int j = 0; j < kFour; j++) {
                f32 v[8];
                unpack_8(p.old[j], v);
#pragma unroll
                for (int e = 0; e < 8; e++) sum[e] = __fmaf_rn(comb[kFour * j + k], v[e], sum[e]);
            }
            out[k] = pack_8(sum);
        }
        ptx::barrier_wait(at.empty(ring.stage), ring.parity ^ 1);
#pragma unroll
        for (int k = 0; k < kFour; k++) {
            if (exists) {
                *reinterpret_cast<uint4*>(x + static_cast<i64>(k) * args.add.post.hidden + column) = out[k];
            }
            ptx::store_vector(at.streams(ring.stage, k) + slot * kBlockBytes + ((chunk ^ (slot & 7)) << 4), out[k].x,
                              out[k].y, out[k].z, out[k].w);
        }
        ptx::fence_async_proxy();
        arrive_warp(at.full(ring.stage));
    }

    // Without experts, the columns of the next block are loaded while those of a block are added. With experts, a block
    // has more loads, and there are not enough registers.
    DEVICE void run(i32 blocks) {
        begin();
        Cursor ring;
        Piece now;
        if (!Experts) now = load(8 * chunk);
#pragma unroll 1
        for (i32 b = 0; b < blocks; ++b) {
            const i32 column = 64 * b + 8 * chunk;
            if constexpr (Experts) {
                add(load_summed(column), column, ring);
            } else {
                Piece next = now;
                if (b + 1 < blocks) next = load(column + 64);
                add(now, column, ring);
                now = next;
            }
            ring.advance(kTileStages);
        }
    }
};

// The warpgroup that multiplies: 64 rows by all weights.
struct Multiplier {
    const HyperManyArgs& args;
    const ManyPlaces& at;
    const i32 blocks; // blocks of 64 columns of a stream
    const i32 thread = threadIdx.x - 32 * kAddWarps, lane = lane_id();
    Cursor refill;    // stage that gets weights next
    i32 asked = 0;    // blocks whose weights have been requested

    DEVICE Multiplier(const HyperManyArgs& a, const ManyPlaces& p, i32 n) : args(a), at(p), blocks(n) {}

    // Requests the weights of the next block, by one thread.
    DEVICE void ask(u32 stage) {
        ptx::barrier_expect(at.full(stage), kFour * kTileWeight);
#pragma unroll
        for (int i = 0; i < kFour; ++i) {
            ptx::load_2d(at.weights(stage, i), &args.weight_map, at.full(stage),
                         (i * blocks + asked) * Bf16::BlockColumns, 0, ptx::kEvictNormal);
        }
        ++asked;
    }

    DEVICE void begin() {
        if (thread != 0) return;
        for (u32 s = 0; s < kTileStages && asked < blocks; ++s) ask(s);
    }

    // Releases the stage that was read first. One thread requests the next weights for it.
    DEVICE void release() {
        arrive_warp(at.empty(refill.stage));
        if (thread == 0 && asked < blocks) {
            ptx::barrier_wait(at.empty(refill.stage), refill.parity);
            ask(refill.stage);
        }
        __syncwarp();
        refill.advance(kTileStages);
    }

    DEVICE void run() {
        float sum[kFour][kTileColumns / 2];
        Cursor ring;
        const i32 half = blocks / 2;
#pragma unroll 1
        for (i32 h = 0; h < 2; ++h) {
#pragma unroll 1
            for (i32 b = 0; b < half; ++b) {
                ptx::barrier_wait(at.full(ring.stage), ring.parity);
#pragma unroll
                for (int i = 0; i < kFour; ++i) ptx::mma_pin(sum[i]);
                ptx::mma_fence();
#pragma unroll
                for (int i = 0; i < kFour; ++i) {
                    multiply_block<Bf16, kTileColumns>(sum[i], ptx::operand_128b(at.streams(ring.stage, i)),
                                                       ptx::operand_128b(at.weights(ring.stage, i)), b > 0);
                }
                ptx::mma_commit();
                ring.advance(kTileStages);
                if (b > 0) {
                    ptx::mma_wait<1>();
                    release();
                }
            }
            ptx::mma_wait<0>();
#pragma unroll
            for (int i = 0; i < kFour; ++i) ptx::mma_pin(sum[i]);
            release();
            if (h == 0) {
#pragma unroll
                for (int i = 0; i < kFour * kTileColumns / 2; ++i) {
                    at.rest->kept[i][thread] = sum[i / (kTileColumns / 2)][i % (kTileColumns / 2)];
                }
            }
        }
        write(sum);
    }

    // Adds all parts in order and writes the products.
    DEVICE void write(const float (&sum)[kFour][kTileColumns / 2]) const {
        float all[kTileColumns / 2];
#pragma unroll
        for (int e = 0; e < kTileColumns / 2; ++e) {
            all[e] = __fadd_rn(at.rest->kept[e][thread], sum[0][e]);
#pragma unroll
            for (int i = 1; i < kFour; ++i) {
                all[e] = __fadd_rn(all[e], at.rest->kept[i * (kTileColumns / 2) + e][thread]);
                all[e] = __fadd_rn(all[e], sum[i][e]);
            }
        }
        const i32 top = thread / 32 * 16 + lane / 4;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const i64 row = static_cast<i64>(blockIdx.x) * kTileRows + top + 8 * i;
            if (row >= args.add.post.rows) continue;
            f32* out = args.out + row * args.out_stride + lane % 4 * 2;
#pragma unroll
            for (int e = 0; e < kTileColumns / 8; ++e) {
                if (8 * e < args.columns) {
                    *reinterpret_cast<float2*>(out + 8 * e) = make_float2(all[4 * e + 2 * i], all[4 * e + 2 * i + 1]);
                }
            }
        }
    }
};

template <bool Experts> DEVICE void add_and_multiply(const HyperManyArgs& args) {
    const ManyPlaces at;
    const i32 blocks = args.add.post.hidden / Bf16::BlockColumns;
    if (threadIdx.x == 0) {
        for (u32 s = 0; s < kTileStages; ++s) {
            ptx::barrier_init(at.full(s), kAddWarps + 1); // the warps that add, and the thread that requests weights
            ptx::barrier_init(at.empty(s), 4);
        }
        ptx::barrier_init_fence();
    }
    __syncthreads();
    const i32 warp = __shfl_sync(ptx::kFullMask, threadIdx.x / 32, 0);
    if (warp >= kAddWarps) {
        Multiplier multiplier(args, at, blocks);
        multiplier.begin();
        begin_after_previous(); // an earlier kernel may read the memory of the products
        multiplier.run();
        return;
    }
    begin_after_previous();
    Adder<Experts> adder(args, at);
    adder.run(blocks);
}

} // namespace sparrow_hyper
