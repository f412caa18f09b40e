// Index scores, portable kernels: score[row, key] = scale[key] * sum over heads of weight[row, h] * relu(q[row, h] .
// key). Keys are contiguous ranges (ragged) or the pages of requests (paged). sm90/index documents the arguments.
//
// Item:  up to four query rows and the union of their keys.
// Block: 256 threads. The queries are in shared memory in half precision. Each warp loads its keys from global memory
//        to registers, in tiles of 16; they are the left operand, and heads are the right operand. In prompts a warp
//        processes two tiles at a time and reads the queries once for both. The keys of an
//        item are distributed round robin over its blocks (gridDim.y), eight warps of keys at a time.
// Bits:  A score depends only on its query row and its key: heads are summed in tiles of eight, then over four lanes.
#pragma once

#include "sm80/map.cuh"
#include "sm80/mma.cuh"
#include "sm90/index/paged_args.h"
#include "sm90/index/ragged_args.h"
#include "smxx/base.h"

namespace portable {

constexpr int kIndexThreads = 256, kIndexRows = 4, kIndexKeys = 16;  // kIndexKeys: keys per tile
constexpr i32 kIndexDim = 128, kPageKeys = 64;

template <int Heads>
struct IndexStorage {
    u8 queries[kIndexRows * Heads * 2 * kIndexDim];  // halves, at the addresses of query_piece
    float weights[kIndexRows * Heads];
};

// Returns the address of 16-byte piece p of a query of 256 bytes. Lanes that read together have no bank conflicts.
__device__ __forceinline__ u32 query_piece(u32 row, u32 p) {
    return row * 256 + ((p ^ (p >> 3 << 1) ^ (row & 1)) << 4);
}

// One query row of an item.
struct IndexRow {
    i32 lo, hi;     // keys in [lo, hi) are scored and stored
    i32 origin;     // key whose score is column 0
};

// The query rows of a ragged launch, their key ranges, and the addresses of the keys.
struct RaggedKeys {
    const IndexRaggedArgs& args;
    i32 item;

    __device__ __forceinline__ i32 rows() const { return min(kIndexRows, args.rows - item * kIndexRows); }
    __device__ __forceinline__ i64 first_row() const { return static_cast<i64>(item) * kIndexRows; }
    __device__ __forceinline__ IndexRow row(i32 j) const {
        const i64 r = first_row() + j;
        const i32 lo = max(args.key_start[r], 0), end = args.key_end[r];
        i32 hi = args.lengths ? lo + min(max(end, 0), max(args.keys - lo, 0)) : max(min(end, args.keys), lo);
        hi = hi - lo > args.skip ? hi : lo;
        return {lo, hi, args.relative ? lo : 0};
    }
    // Returns the address of key k and sets the address of its scale; returns null if the key does not exist.
    __device__ __forceinline__ const u8* key(i32 k, const float*& scale) const {
        if (k < 0 || k >= args.keys) {
            return nullptr;
        }
        scale = reinterpret_cast<const float*>(plain(args.scales_map).base) + k;
        return plain(args.keys_map).base + static_cast<i64>(k) * kIndexDim;
    }
};

struct PagedKeys {
    const IndexPagedArgs& args;
    i32 item;

    __device__ __forceinline__ i32 rows() const { return args.next_n; }
    __device__ __forceinline__ i64 first_row() const { return static_cast<i64>(item) * args.next_n; }
    __device__ __forceinline__ IndexRow row(i32 j) const {
        const i32 columns = min(static_cast<i64>(args.max_context), static_cast<i64>(args.max_blocks) * kPageKeys);
        const i32 keys = min(args.context_lengths[first_row() + j], columns);
        return {0, keys > args.skip ? max(keys, 0) : 0, 0};
    }
    __device__ __forceinline__ const u8* key(i32 k, const float*& scale) const {
        const i64 table_row = args.table_rows ? args.table_rows[first_row()] : item;
        if (k >= min(args.max_context, args.max_blocks * kPageKeys)) {
            return nullptr;
        }
        const i64 page = args.block_table[table_row * args.table_stride + k / kPageKeys];
        const PlainMap& keys = plain(args.keys_map);
        if (page < 0 || page >= static_cast<i64>(keys.dims[2])) {
            return nullptr;
        }
        const PlainMap& scales = plain(args.scales_map);
        scale = reinterpret_cast<const float*>(scales.base + page * scales.strides[0]) + k % kPageKeys;
        return keys.base + page * keys.strides[1] + k % kPageKeys * kIndexDim;
    }
};

template <int Heads, int Tiles, class Source>
__device__ __forceinline__ void score_keys(const Source& source, const u8* queries, const float* weights, float* scores,
                                           i64 stride) {
    extern __shared__ __align__(128) u8 dynamic_shared[];
    IndexStorage<Heads>& shared = *reinterpret_cast<IndexStorage<Heads>*>(dynamic_shared);
    __shared__ IndexRow rows[kIndexRows];
    const i32 count = source.rows();
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
    i32 begin = 0x7FFFFFFF, end = 0;
    for (i32 j = 0; j < count; ++j) {
        const IndexRow r = source.row(j);
        if (threadIdx.x == 0) {
            rows[j] = r;
        }
        if (r.lo < r.hi) {
            begin = min(begin, r.lo);
            end = max(end, r.hi);
        }
    }
    constexpr i32 kOwn = Tiles * kIndexKeys, kStep = kIndexThreads / 32 * kOwn;
    begin += blockIdx.y * kStep;
    if (end == 0 || begin >= end) {
        return;
    }
    const u8* from = queries + source.first_row() * Heads * kIndexDim;
    for (i32 i = threadIdx.x; i < count * Heads * 8; i += kIndexThreads) {  // 16 codes at a time
        const uint4 codes = reinterpret_cast<const uint4*>(from)[i];
        const u32 row = i / 8, p = i % 8 * 2;
        uint4 a, b;
        widen_codes(codes.x, a.x, a.y);
        widen_codes(codes.y, a.z, a.w);
        widen_codes(codes.z, b.x, b.y);
        widen_codes(codes.w, b.z, b.w);
        *reinterpret_cast<uint4*>(shared.queries + query_piece(row, p)) = a;
        *reinterpret_cast<uint4*>(shared.queries + query_piece(row, p + 1)) = b;
    }
    for (i32 i = threadIdx.x; i < count * Heads; i += kIndexThreads) {
        shared.weights[i] = weights[source.first_row() * Heads + i];
    }
    __syncthreads();
    const u32 q = shared_address(shared.queries);
    for (i32 at = begin + static_cast<i32>(warp) * kOwn; at < end; at += gridDim.y * kStep) {
        u32 key[Tiles][8][4];
        float scale[2 * Tiles];
#pragma unroll
        for (int i = 0; i < 2 * Tiles; ++i) {  // keys `group` and `group` + 8 of a tile
            const float* own_scale = nullptr;
            const u8* own = source.key(at + i * 8 + group, own_scale);
            uint4 low = make_uint4(0, 0, 0, 0), high = low;
            scale[i] = 0.0f;
            if (own != nullptr) {
                low = __ldg(reinterpret_cast<const uint4*>(own + 32 * quad));
                high = __ldg(reinterpret_cast<const uint4*>(own + 32 * quad + 16));
                scale[i] = *own_scale;
            }
#pragma unroll
            for (int s = 0; s < 8; ++s) {
                u32(&to)[4] = key[i / 2][s];
                widen_codes(word_of(s < 4 ? low : high, s % 4), to[i % 2], to[i % 2 + 2]);
            }
        }
        for (i32 j = 0; j < count; ++j) {
            const IndexRow r = rows[j];
            if (at >= r.hi || at + kOwn <= r.lo) {
                continue;
            }
            float even[2 * Tiles] = {}, odd[2 * Tiles] = {};
#pragma unroll 2
            for (int h = 0; h < Heads; h += 8) {
                float d[Tiles][4] = {};
                const u32 row = j * Heads + h + group;
#pragma unroll
                for (int s = 0; s < 8; s += 2) {
                    const uint4 piece = load_shared(q + query_piece(row, 4 * quad + s / 2));
                    const u32 first[2] = {piece.x, piece.y}, second[2] = {piece.z, piece.w};
#pragma unroll
                    for (int t = 0; t < Tiles; ++t) {
                        multiply_f16(d[t], key[t][s], first);
                    }
#pragma unroll
                    for (int t = 0; t < Tiles; ++t) {
                        multiply_f16(d[t], key[t][s + 1], second);
                    }
                }
                const float2 w = *reinterpret_cast<const float2*>(shared.weights + j * Heads + h + 2 * quad);
#pragma unroll
                for (int i = 0; i < 2 * Tiles; ++i) {
                    even[i] = fmaf(fmaxf(d[i / 2][i % 2 * 2], 0.0f), w.x, even[i]);
                    odd[i] = fmaf(fmaxf(d[i / 2][i % 2 * 2 + 1], 0.0f), w.y, odd[i]);
                }
            }
#pragma unroll
            for (int i = 0; i < 2 * Tiles; ++i) {
                float sum = even[i] + odd[i];
                sum += __shfl_xor_sync(ptx::kFullMask, sum, 1);
                sum += __shfl_xor_sync(ptx::kFullMask, sum, 2);
                const i32 k = at + i * 8 + group;
                if (quad == 0 && k >= r.lo && k < r.hi) {
                    scores[(source.first_row() + j) * stride + (k - r.origin)] = sum * (scale[i] * kCodeUp);
                }
            }
        }
    }
}

}  // namespace portable

#define PORTABLE_INDEX(heads)                                                                                        \
    extern "C" __global__ void __launch_bounds__(portable::kIndexThreads)                                            \
        portable_index_ragged_h##heads(const __grid_constant__ IndexRaggedArgs args) {                               \
        portable::score_keys<heads, 2>(portable::RaggedKeys{args, static_cast<i32>(blockIdx.x)},                     \
                                    portable::plain(args.query_map).base, args.weights, args.scores, args.stride);   \
    }                                                                                                                \
    extern "C" __device__ const u32 portable_index_ragged_h##heads##_shared = sizeof(portable::IndexStorage<heads>); \
    extern "C" __global__ void __launch_bounds__(portable::kIndexThreads)                                            \
        portable_index_paged_h##heads(const __grid_constant__ IndexPagedArgs args) {                                 \
        portable::score_keys<heads, 1>(portable::PagedKeys{args, static_cast<i32>(blockIdx.x)},                      \
                                    portable::plain(args.query_map).base, args.weights, args.scores, args.stride);   \
    }                                                                                                                \
    extern "C" __device__ const u32 portable_index_paged_h##heads##_shared = sizeof(portable::IndexStorage<heads>);
