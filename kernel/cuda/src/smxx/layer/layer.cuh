// Fuses small, independent operations of a layer in one launch. Each block does one of them; results are bitwise
// equal to those of the separate kernels.
//
// Store: blocks of latent rows (smxx/cache/write.cuh), then of indexer keys, then of indexer queries
//        (smxx/indexer/prepare.cuh).
// Turn:  blocks of heads to rotate (smxx/rope/rope.cuh), then of selected positions to convert to slots
//        (smxx/rows/locate.cuh).
#pragma once
#include "smxx/cache/write.cuh"
#include "smxx/indexer/prepare.cuh"
#include "smxx/layer/args.h"
#include "smxx/rope/rope.cuh"
#include "smxx/rows/locate.cuh"

template <class Layout> DEVICE void store_latent(const StoreLatentArgs& a) {
    i32 block = blockIdx.x;
    if (block < a.row_blocks) return write_main<Layout>(a.rows, block);
    block -= a.row_blocks;
    if (block < a.key_blocks) return write_index_key_body(a.keys, block);
    block -= a.key_blocks;
    const i32 token = block / a.head_blocks;
    index_query_body(a.queries, token, block - token * a.head_blocks);
}

DEVICE void turn(const TurnArgs& a) {
    const i32 block = blockIdx.x, rotated = a.rotate.rows * a.pair_blocks;
    if (block >= rotated) return locate_body(a.locate, block - rotated);
    const i32 row = block / a.pair_blocks;
    rotate_body(a.rotate, row, block - row * a.pair_blocks);
}
