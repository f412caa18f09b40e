// Matrix products of many rows with small weights, for all elements of a batch: the absorb and expand products of all
// heads.
//
// In:    weight bf16 [batch, columns, k], where one element of the batch fits in 128 KB; input bf16 [batch, rows, k].
// Out:   bf16 [batch, rows, columns].
// Block: one per SM, persistent. It keeps the weights of one element of the batch in shared memory and takes every
//        splits-th tile of 128 input rows, so that blocks write adjacent columns of the same rows at about the same
//        time. Two warpgroups multiply 64 rows each by 128 columns at a time; one warp issues copies. The products
//        start as soon as the first weights have arrived.
// Bytes: inputs are read and results written once; weights are read once per block.
// H200:  4096 rows of 128 heads: absorb 180 us, 3.7 TB/s, 87 % of 4.3; expand 177 us, 3.8 TB/s, 88 %. 64 rows,
//        launches that overlap: 8.6 and 8.7 us.
#pragma once

#include "ptx/global.cuh"
#include "ptx/wgmma_half.cuh"
#include "sm90/product/config.h"

namespace sparrow_product {

constexpr int kResidentStages = 4;
constexpr int kResidentPieces = 8;  // maximum weight pieces of an element of the batch: 128 rows by a block of k
constexpr int kResidentThreads = 2 * 128 + 32;
constexpr u32 kResidentTile = 128 * kBlockBytes;    // bytes of 128 rows of an operand by a block of k
// Maximum bytes of the weights of an element of the batch.
constexpr u32 kResidentWeights = kResidentPieces * kResidentTile;
constexpr u32 kResidentOut = 128 * 128 * 2;          // bytes of the bf16 results of 128 rows by 128 columns
constexpr u32 kResidentBytes = 1024 + kResidentWeights + kResidentStages * kResidentTile + kResidentOut + 256;
static_assert(kResidentBytes <= kSharedLimit, "more shared memory than a Hopper block can have");

struct ResidentPlaces {
    u32 base, column_tiles;

    __device__ __forceinline__ explicit ResidentPlaces(const ProductArgs& args) {
        extern __shared__ u8 dynamic_shared[];
        base = __shfl_sync(ptx::kFullMask, (ptx::shared_address(dynamic_shared) + 1023) / 1024 * 1024, 0);
        column_tiles = static_cast<u32>(args.columns + 127) / 128;
    }
    __device__ __forceinline__ u32 weights(u32 piece) const { return base + piece * kResidentTile; }
    __device__ __forceinline__ u32 inputs(u32 stage) const { return base + kResidentWeights + stage * kResidentTile; }
    __device__ __forceinline__ u32 out(u32 warp) const { return inputs(kResidentStages) + warp * (kResidentOut / 8); }
    __device__ __forceinline__ u32 full(u32 stage) const { return out(8) + stage * 8; }
    __device__ __forceinline__ u32 empty(u32 stage) const { return full(kResidentStages + stage); }
    __device__ __forceinline__ u32 weights_full(u32 piece) const { return full(2 * kResidentStages + piece); }
    __device__ __forceinline__ u32 weights_empty() const { return weights_full(kResidentPieces); }
};

// The work of a thread block: one element of the batch and every splits-th tile of 128 input rows.
struct ResidentItems {
    i32 item, count, splits, row_tiles, batch;

    __device__ __forceinline__ explicit ResidentItems(const ProductArgs& args)
        : item(blockIdx.x),
          splits(max(1, static_cast<i32>(gridDim.x) / args.batch)),
          row_tiles((args.rows + 127) / 128),
          batch(args.batch) {
        count = batch * splits;
    }
    __device__ __forceinline__ bool more() const { return item < count; }
    __device__ __forceinline__ i32 which() const { return item % batch; }
    __device__ __forceinline__ i32 first_tile() const { return item / batch; }
    __device__ __forceinline__ void advance() { item += gridDim.x; }
};

// The copy thread. Pieces of weights are loaded in the order in which products read them: the blocks of k of the first
// 128 columns, then of the next 128, and so on. Two pieces are loaded before waiting for the previous kernel. The
// blocks of the first tile of input rows are then loaded, alternating with the next pieces, so that products of few
// rows start early.
__device__ __forceinline__ void feed_resident(const ProductArgs& args, const ResidentPlaces& at) {
    Cursor ring;
    u32 parity = 0;
    const i32 pieces = args.blocks * static_cast<i32>(at.column_tiles);
    for (ResidentItems items(args); items.more(); items.advance(), parity ^= 1) {
        const i32 b = items.which();
        const auto ask_weights = [&](i32 piece) {
            const i32 column = piece / args.blocks, block = piece - column * args.blocks;
            ptx::barrier_expect(at.weights_full(piece), kResidentTile);
            ptx::load_3d(at.weights(piece), &args.weight_map, at.weights_full(piece), block * Bf16::BlockColumns,
                         column * 128, b, ptx::kEvictNormal);
        };
        const auto ask_inputs = [&](i32 tile, i32 block) {
            ptx::barrier_wait(at.empty(ring.stage), ring.parity ^ 1);
            ptx::barrier_expect(at.full(ring.stage), kResidentTile);
            ptx::load_3d(at.inputs(ring.stage), &args.input_map, at.full(ring.stage), block * Bf16::BlockColumns,
                         tile * 128, b, ptx::kEvictFirst);
            ring.advance(kResidentStages);
        };
        ptx::barrier_wait(at.weights_empty(), parity ^ 1);
        i32 piece = 0;
        for (; piece < min(2, pieces); ++piece) {
            ask_weights(piece);
        }
        if (items.item == static_cast<i32>(blockIdx.x)) {
            wait_for_inputs(args);
        }
        for (i32 block = 0; block < args.blocks; ++block) {
            ask_inputs(items.first_tile(), block);
            if (piece < pieces) {
                ask_weights(piece++);
            }
        }
        for (; piece < pieces; ++piece) {
            ask_weights(piece);
        }
#pragma unroll 1
        for (i32 tile = items.first_tile() + items.splits; tile < items.row_tiles; tile += items.splits) {
#pragma unroll 1
            for (i32 block = 0; block < args.blocks; ++block) {
                ask_inputs(tile, block);
            }
        }
    }
}

// Writes 16 rows by 128 columns of a warp; 16 lanes write the 256 bytes of a row. The warp's shared memory is free as
// soon as it has been read, whereas stores by the copy engine would need a wait.
__device__ __forceinline__ void write_resident(const ProductArgs& args, u32 place, const float (&sum)[64], i32 row,
                                               i32 column, i32 batch, u32 lane) {
#pragma unroll
    for (int e = 0; e < 16; e += 2) {
        const u32 words[4] = {
            ptx::pack_bf16(sum[4 * e], sum[4 * e + 1]), ptx::pack_bf16(sum[4 * e + 2], sum[4 * e + 3]),
            ptx::pack_bf16(sum[4 * e + 4], sum[4 * e + 5]), ptx::pack_bf16(sum[4 * e + 6], sum[4 * e + 7])};
        ptx::store_fragments(place + e / 8 * 2048 + lane % 16 * 128 + (((e % 8 + lane / 16) ^ (lane & 7)) << 4), words);
    }
    __syncwarp();
    const u32 piece = lane % 16;
    const i32 first = column + static_cast<i32>(piece) * 8;
    u16* out = static_cast<u16*>(args.out) + batch * args.out_batch + first;
#pragma unroll
    for (u32 r = 0; r < 16; r += 2) {
        const u32 in = r + lane / 16;
        const uint4 v = ptx::load_vector(place + piece / 8 * 2048 + in * 128 + (((piece % 8) ^ (in & 7)) << 4));
        if (row + static_cast<i32>(in) < args.rows && first < args.columns) {
            ptx::store_once(out + (row + static_cast<i32>(in)) * args.out_stride, v);
        }
    }
    __syncwarp();
}

// A math warpgroup multiplies 64 rows of each tile; it may have no rows in the last tile.
__device__ __forceinline__ void multiply_resident_rows(const ProductArgs& args, const ResidentPlaces& at, i32 group) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 place = at.out(warp), tiles = at.column_tiles;
    Cursor ask, done;
    u32 parity = 0;
    for (ResidentItems items(args); items.more(); items.advance(), parity ^= 1) {
#pragma unroll 1
        for (i32 tile = items.first_tile(); tile < items.row_tiles; tile += items.splits) {
            const bool first = tile == items.first_tile(), rows = tile * 128 + group * 64 < args.rows;
            const Cursor begin = ask;
#pragma unroll 1
            for (u32 c = 0; c < tiles; ++c) {
                const bool last = c + 1 == tiles;  // the products of the last columns free the inputs
                float sum[64];
                ask = begin;
#pragma unroll 1
                for (i32 block = 0; block < args.blocks; ++block) {
                    const u32 piece = c * args.blocks + block;
                    if (first) {
                        ptx::barrier_wait(at.weights_full(piece), parity);
                    }
                    ptx::barrier_wait(at.full(ask.stage), ask.parity);
                    if (rows) {
                        ask_block<Bf16, 128>(sum, at.inputs(ask.stage) + group * 64 * kBlockBytes, at.weights(piece),
                                             block > 0);
                    }
                    ask.advance(kResidentStages);
                    if (last && block > 0) {
                        ptx::mma_wait<1>();
                        arrive_warp(at.empty(done.stage));
                        done.advance(kResidentStages);
                    }
                }
                ptx::mma_wait<0>();
                ptx::mma_pin(sum);
                if (last) {
                    arrive_warp(at.empty(done.stage));
                    done.advance(kResidentStages);
                }
                if (rows) {
                    write_resident(args, place, sum, tile * 128 + static_cast<i32>(warp) * 16, c * 128, items.which(),
                                   lane);
                }
            }
        }
        arrive_warp(at.weights_empty());
    }
}

__device__ __forceinline__ void multiply_resident(const ProductArgs& args) {
    const ResidentPlaces at(args);
    const u32 warp = __shfl_sync(ptx::kFullMask, threadIdx.x / 32, 0);
    if (threadIdx.x == 32 * 8) {
        ptx::prefetch_map(&args.weight_map);
        ptx::prefetch_map(&args.input_map);
    }
    if (threadIdx.x == 0) {
        for (int s = 0; s < kResidentStages; ++s) {
            ptx::barrier_init(at.full(s), 1);
            ptx::barrier_init(at.empty(s), 8);
        }
        for (int i = 0; i < kResidentPieces; ++i) {
            ptx::barrier_init(at.weights_full(i), 1);
        }
        ptx::barrier_init(at.weights_empty(), 8);
        ptx::barrier_init_fence();
    }
    __syncthreads();
    if (warp == 8) {
        if (threadIdx.x % 32 == 0) {
            feed_resident(args, at);
            ptx::release_next_kernel();
            end_after_previous(args);
        }
        __syncwarp();
    } else {
        multiply_resident_rows(args, at, warp / 4);
    }
}

}  // namespace sparrow_product
