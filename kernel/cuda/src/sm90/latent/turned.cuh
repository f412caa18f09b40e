// Attention over every key of paged sequences with 656-byte FP8 rows. Scores and outputs are transposed: keys (scores)
// and value columns (outputs) are the rows of the tensor-core tile, heads its columns.
//
// In:    q bf16 [rows, heads * 576]; pages of 64 rows: 512 e4m3 codes, 4 f32 scales, 64 bf16 values of the rotary part.
// Out:   bf16 [rows, heads * 512] with lse, or partial results of segments for combine.cuh.
// Block: one per SM, 512 threads. A unit of work is N heads of a row over a segment of its keys. The copy engine loads
//        whole pages into a ring. One warpgroup computes scores and softmax, two have 256 output columns each, and one
//        thread issues the page copies. Codes are converted to half precision when they are loaded from shared memory
//        to the registers that hold the A operands, so converted rows are never stored. Rows of 656 bytes are read
//        without bank conflicts.
// Bytes: every row is read once per N heads.
// Bits:  the result of a head depends neither on N nor on other rows.
#pragma once

#include "ptx/copy.cuh"
#include "ptx/matrix.cuh"
#include "ptx/wgmma_turned.cuh"
#include "sm90/sparse/math.cuh"

namespace sparrow_latent {

using namespace sparrow_sparse;

constexpr u32 kTurnedThreads = 512;
constexpr int kScoreRegisters = 136, kValueRegisters = 176, kFetchRegisters = 24;
constexpr u32 kStages = 3;  // stages of the ring, one page each
constexpr u32 kRowBytes = 656, kScalesAt = 512, kRopeAt = 528;
constexpr u32 kPageBytes = kKeys * kRowBytes;
constexpr int kCodeTiles = 8, kAllTiles = 9;
constexpr u64 kEvictNormal = 0x1000000000000000ull;
constexpr u32 kLag = 3;  // if bit h is set, value group h waits for the scores of the next block before its products
// The limit of the weights at which a head has exceeded its base. It is slightly below 2^kSlack, because exponentials
// are approximate: a head that exceeds its base must always be detected, otherwise its rescaling would depend on the
// other heads of the unit.
constexpr float kOutgrown = 255.0f;
constexpr u32 kFaultPage = 1;  // fault bit: a page lies beyond the pool

// Barriers. full: the copy engine has filled a page of keys. weights_full: the score group has written weights, scales
// and factors for the value groups. weights_empty, empty: the value groups have read them, and the page. scores_done:
// the scores of a block are almost complete. final_full, final_empty: final factors of a unit.
template <int N>
struct TurnedStorage {
    u8 q[kAllTiles * N * 128];        // tiles [N heads][64 columns]
    u8 weights[2][kTileBytes];        // half precision [64 keys][64 heads]
    u8 keys[kStages][kPageBytes];
    u16 scales[2][4][kKeys];          // half precision [buffers][128 columns each][keys]
    float factor[2][N];               // [buffers][heads] factor by which a block rescales the output
    float final[N];                   // [heads] final factor of a unit's output
    float peaks[4][N], sums[4][N];    // [warps of the score group][heads]: largest scores of a block, sums of a unit
    float base[N];
    u32 moved[2];                     // 1: at least one factor of the block is not one
    i32 valid[kStages];               // leading keys of the page that are valid
    u64 full[kStages], empty[kStages];
    u64 weights_full[2], weights_empty[2], scores_done[2];
    u64 final_full, final_empty;
};

template <int N>
__device__ __forceinline__ void init_barriers(TurnedStorage<N>& shared) {
    constexpr u32 kGroup = 128, kValueWarps = 8;
    for (u32 i = 0; i < kStages; ++i) {
        ptx::barrier_init(ptx::shared_address(&shared.full[i]), 1);
        ptx::barrier_init(ptx::shared_address(&shared.empty[i]), kValueWarps);
    }
    for (u32 i = 0; i < 2; ++i) {
        ptx::barrier_init(ptx::shared_address(&shared.weights_full[i]), kGroup);
        ptx::barrier_init(ptx::shared_address(&shared.weights_empty[i]), kValueWarps);
        ptx::barrier_init(ptx::shared_address(&shared.scores_done[i]), 4);
    }
    ptx::barrier_init(ptx::shared_address(&shared.final_full), kGroup);
    ptx::barrier_init(ptx::shared_address(&shared.final_empty), kValueWarps);
    ptx::barrier_init_fence();
}

// A stage of the ring of pages, and the parity of the current phase of its barriers.
struct Stage {
    u32 at = 0, parity = 0;

    __device__ __forceinline__ void step() {
        at = at + 1 == kStages ? 0 : at + 1;
        parity ^= at == 0;
    }
};

// One unit: heads [head, head + N) of a row over the row's key blocks [block, block + blocks).
struct Piece {
    i32 row, head, segment, block, blocks, length;
    bool fresh;  // the unit needs other queries than the previous unit of this thread block
};

// The units of a thread block.
template <int N>
struct Walk {
    u32 first, end, step;

    static __device__ __forceinline__ u32 groups(const SparseAttendArgs& args) {
        return (static_cast<u32>(args.heads) + N - 1) / N;
    }

    __device__ __forceinline__ explicit Walk(const SparseAttendArgs& args) {
        const bool list = listed(args);
        first = list ? 0 : blockIdx.x;
        end = list ? *const_cast<volatile u32*>(&unit_list().count) : static_cast<u32>(args.rows) * groups(args);
        step = list ? 1 : gridDim.x;
    }

    __device__ __forceinline__ Piece at(const SparseAttendArgs& args, u32 u) const {
        const u32 number = number_of(args, u), rest = number / static_cast<u32>(args.segments), n = groups(args);
        Piece p;
        p.row = static_cast<i32>(rest / n);
        p.segment = static_cast<i32>(number - rest * args.segments);
        p.head = static_cast<i32>(rest - p.row * n) * N;
        const SelectionView& s = args.streams[0];
        p.length = clipped(s, s.lens[p.row * s.len_stride]);
        const i32 all = (p.length + kKeys - 1) / kKeys, each = segment_blocks(args, all);
        p.block = p.segment * each;
        p.blocks = max(min(all - p.block, each), 0);
        p.fresh = u == first || p.segment == 0;
        return p;
    }
};

// Convert two of the four e4m3 codes of a word, the lower two or the upper two, to half precision.
__device__ __forceinline__ u32 widen_low(u32 codes) {
    u32 halves;
    asm("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %1; cvt.rn.f16x2.e4m3x2 %0, lo; }" : "=r"(halves) : "r"(codes));
    return halves;
}
__device__ __forceinline__ u32 widen_high(u32 codes) {
    u32 halves;
    asm("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %1; cvt.rn.f16x2.e4m3x2 %0, hi; }" : "=r"(halves) : "r"(codes));
    return halves;
}
__device__ __forceinline__ u32 times(u32 halves, u32 scale) {
    u32 r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(halves), "r"(scale));
    return r;
}
// Returns a scale in both halves of a word, in half precision.
__device__ __forceinline__ u32 half_scale(float scale) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %1;" : "=r"(r) : "f"(scale));
    return r;
}
__device__ __forceinline__ uint4 shared_16(u32 address) {
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "r"(address) : "memory");
    return v;
}
__device__ __forceinline__ void store_shared_16(u32 address, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// Stores a [16, 8] matrix of 16-bit elements from the registers of a warp; lane l < 16 passes the address of row l.
__device__ __forceinline__ void store_eight(u32 address, u32 a, u32 b) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(a), "r"(b) : "memory");
}

// Returns true in all threads of the score group if `mine` is true in at least one of them.
__device__ __forceinline__ bool any_of_group(bool mine) {
    u32 r;
    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; barrier.cta.red.or.pred q, 1, 128, p; "
        "selp.u32 %0, 1, 0, q; }" : "=r"(r) : "r"(static_cast<u32>(mine)) : "memory");
    return r != 0;
}

// Copies the queries of a unit to shared memory, by thread t of Threads. Of each 16 columns of codes, lane t of four
// loads the adjacent codes 4t to 4t + 3 and uses them as columns 2t, 2t + 1, 8 + 2t and 9 + 2t of the A operand.
// Queries are therefore stored in that order. Heads beyond the last are zeros.
template <int N, u32 Threads>
__device__ __forceinline__ void take_queries(const SparseAttendArgs& args, TurnedStorage<N>& shared, const Piece& p,
    u32 t) {
    constexpr u32 kChunks = kAllTiles * 4, kAtOnce = 6;
    const u32 base = ptx::shared_address(shared.q);
#pragma unroll 1
    for (u32 from = t; from < N * kChunks; from += kAtOnce * Threads) {
        uint4 v[kAtOnce][2];
#pragma unroll
        for (u32 i = 0; i < kAtOnce; ++i) {
            const u32 at = from + i * Threads, head = at / kChunks, chunk = at % kChunks;
            v[i][0] = v[i][1] = make_uint4(0, 0, 0, 0);
            if (at < N * kChunks && p.head + static_cast<i32>(head) < args.heads) {
                const uint4* src = reinterpret_cast<const uint4*>(args.q + p.row * args.q_stride +
                    static_cast<i64>(p.head + head) * (kAllTiles * kTileColumns) + chunk * 16);
                v[i][0] = src[0];
                v[i][1] = src[1];
            }
        }
#pragma unroll
        for (u32 i = 0; i < kAtOnce; ++i) {
            const u32 at = from + i * Threads, head = at / kChunks, chunk = at % kChunks;
            if (at >= N * kChunks) {
                break;
            }
            const u32 tile = base + chunk / 4 * (N * 128), low = tile + tile_byte(head, chunk % 4 * 2),
                high = tile + tile_byte(head, chunk % 4 * 2 + 1);
            u32 w[8] = {v[i][0].x, v[i][0].y, v[i][0].z, v[i][0].w, v[i][1].x, v[i][1].y, v[i][1].z, v[i][1].w};
            if (chunk < kCodeTiles * 4) {
#pragma unroll
                for (int k = 0; k < 8; ++k) {
                    w[k] = ptx::F16::pack(__uint_as_float(w[k] << 16), __uint_as_float(w[k] & 0xFFFF0000u));
                }
                store_shared_16(low, w[0], w[2], w[4], w[6]);
                store_shared_16(high, w[1], w[3], w[5], w[7]);
            } else {
                store_shared_16(low, w[0], w[1], w[2], w[3]);
                store_shared_16(high, w[4], w[5], w[6], w[7]);
            }
        }
    }
    ptx::fence_async_proxy();
}

// The score group: scores and softmax. A lane has keys 16 * warp + lane / 4 and 16 * warp + lane / 4 + 8, and heads 8j
// + 2 (lane % 4) and 8j + 2 (lane % 4) + 1.
template <int N>
struct TurnedScores {
    static constexpr int kOwn = N / 4;  // heads per lane
    const SparseAttendArgs& args;
    TurnedStorage<N>& shared;
    Corner at;
    Stage stage;
    u32 done = 0, units = 0;
    float base[kOwn], sum[kOwn];  // per head: base of the exponents, and sum of the weights of the lane's keys

    __device__ __forceinline__ TurnedScores(const SparseAttendArgs& a, TurnedStorage<N>& s) : args(a), shared(s) {}

    __device__ __forceinline__ i32 head_at(int k) const { return k / 2 * 8 + at.lane % 4 * 2 + k % 2; }

    // Converts the codes of 16 keys and 32 columns to the A operands of two steps of 16 columns.
    static __device__ __forceinline__ void convert(u32 (&a)[4], u32 (&b)[4], const u32 (&r)[4], u32 scale0,
        u32 scale1) {
        a[0] = times(widen_low(r[0]), scale0);
        a[1] = times(widen_low(r[1]), scale1);
        a[2] = times(widen_high(r[0]), scale0);
        a[3] = times(widen_high(r[1]), scale1);
        b[0] = times(widen_low(r[2]), scale0);
        b[1] = times(widen_low(r[3]), scale1);
        b[2] = times(widen_high(r[2]), scale0);
        b[3] = times(widen_high(r[3]), scale1);
    }

    // Computes the scores of the page in the current stage and returns its number of valid keys. Rows beyond the valid
    // keys are set to zero, because they may contain anything, and 0 * NaN is NaN.
    __device__ __forceinline__ i32 multiply(float (&s)[N / 2]) {
        ptx::barrier_wait(ptx::shared_address(&shared.full[stage.at]), stage.parity);
        const i32 valid = read(shared.valid[stage.at]);
        const u32 keys = ptx::shared_address(shared.keys[stage.at]);
        if (valid < kKeys) {
#pragma unroll 1
            for (u32 i = valid * kRowBytes + threadIdx.x % 128 * 16; i < kPageBytes; i += 128 * 16) {
                store_shared_16(keys + i, 0, 0, 0, 0);
            }
            ptx::group_sync<1, 128>();
        }
        const u32 own = keys + at.row * kRowBytes + kScalesAt;
        const uint4 f0 = shared_16(own), f1 = shared_16(own + 8 * kRowBytes);
        const u32 scale0[4] = {half_scale(__uint_as_float(f0.x)), half_scale(__uint_as_float(f0.y)),
            half_scale(__uint_as_float(f0.z)), half_scale(__uint_as_float(f0.w))};
        const u32 scale1[4] = {half_scale(__uint_as_float(f1.x)), half_scale(__uint_as_float(f1.y)),
            half_scale(__uint_as_float(f1.z)), half_scale(__uint_as_float(f1.w))};
        // The four matrices of a load: keys 0-7 and 8-15 of one 16-byte chunk, then of the next 16-byte chunk.
        const u32 row = keys + (at.warp * 16 + at.lane % 16) * kRowBytes + at.lane / 16 * 16;
        const u64 q = ptx::operand_128b(ptx::shared_address(shared.q));
        // The rotary part is multiplied first, because it needs no conversion. The codes of a tile of 64 columns are
        // loaded and converted while the previous tile is multiplied.
        u32 a[2][4][4], r[2][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            ptx::load_matrices(a[1][i], row + kRopeAt + i * 32);
        }
        ptx::mma_pin(s);
#pragma unroll
        for (int step = 0; step < kAllTiles; ++step) {
            const int tile = step - 1;  // -1: the rotary part
            u32(&x)[4][4] = a[tile & 1];
            if (tile >= 0) {
                convert(x[0], x[1], r[0], scale0[tile / 2], scale1[tile / 2]);
                convert(x[2], x[3], r[1], scale0[tile / 2], scale1[tile / 2]);
            }
            if (tile + 1 < kCodeTiles) {
                ptx::load_matrices(r[0], row + (tile + 1) * 64);
                ptx::load_matrices(r[1], row + (tile + 1) * 64 + 32);
            }
            ptx::mma_fence();
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const u64 b = q + ((tile < 0 ? kCodeTiles : tile) * (N * 128) + i * 32) / 16;
                if (tile >= 0) {
                    ptx::Turned<N>::half(s, x[i], b, 1);
                } else {
                    ptx::Turned<N>::bf16(s, x[i], b, i != 0);
                }
            }
            ptx::mma_commit();
            ptx::mma_wait<1>();
        }
        arrive(shared.scores_done[done & 1]);  // all products of the scores except the last are complete
        // Writes the scales for the value groups, to the buffer that they have freed.
        const u32 b = done & 1;
        ptx::barrier_wait(ptx::shared_address(&shared.weights_empty[b]), (done >> 1 & 1) ^ 1);
        if (at.lane % 4 == 0) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                shared.scales[b][i][at.row] = static_cast<u16>(scale0[i]);
                shared.scales[b][i][at.row + 8] = static_cast<u16>(scale1[i]);
            }
        }
        ptx::mma_wait<0>();
        ptx::mma_pin(s);
        return valid;
    }

    // Converts the scores of a block to weights and passes them to the value groups.
    __device__ __forceinline__ void weigh(float (&s)[N / 2], i32 valid) {
        const u32 b = done & 1;
        if (valid < kKeys) {
            const float never = __int_as_float(0xFF800000);
#pragma unroll
            for (int i = 0; i < N / 2; ++i) {
                s[i] = at.row + (i & 2 ? 8 : 0) < valid ? s[i] : never;
            }
        }
        // Computes the weights relative to the current bases. If a weight exceeds kOutgrown, a head has exceeded its
        // base; the bases are then updated and all weights are computed again.
        u32 p[N / 4];
        float t[kOwn], most = weights(s, p, t);
        const bool moved = any_of_group(most > kOutgrown);
        if (threadIdx.x % 128 == 0) {
            shared.moved[b] = moved;
        }
        if (moved) {
            rebase(s, b);
            weights(s, p, t);
        }
#pragma unroll
        for (int k = 0; k < kOwn; ++k) {
            sum[k] += t[k];
        }
#pragma unroll
        for (int j = 0; j < N / 8; j += 2) {
            const u32 to = ptx::shared_address(shared.weights[b]) + tile_byte(at.warp * 16 + at.lane % 16, j +
                (N == 8 ? 0 : at.lane / 16));
            if constexpr (N == 8) {
                store_eight(to, p[0], p[1]);
            } else {
                const u32 four[4] = {p[j * 2], p[j * 2 + 1], p[j * 2 + 2], p[j * 2 + 3]};
                ptx::store_fragments(to, four);
            }
        }
        ptx::fence_async_proxy();
        ptx::barrier_arrive(ptx::shared_address(&shared.weights_full[b]));
    }

    // Computes the weights p of the lane's keys as pairs of adjacent heads, and their sums t per head. Returns the
    // largest sum.
    __device__ __forceinline__ float weights(const float (&s)[N / 2], u32 (&p)[N / 4], float (&t)[kOwn]) const {
        float most = 0.0f;
#pragma unroll
        for (int j = 0; j < N / 8; ++j) {
            float w[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                w[i] = exp2_fast(fmaf(s[j * 4 + i], args.score_scale, -base[j * 2 + i % 2]));
            }
            p[j * 2] = ptx::F16::pack(w[0], w[1]);
            p[j * 2 + 1] = ptx::F16::pack(w[2], w[3]);
            t[j * 2] = w[0] + w[2];
            t[j * 2 + 1] = w[1] + w[3];
            most = fmaxf(most, fmaxf(t[j * 2], t[j * 2 + 1]));
        }
        return most;
    }

    // Updates the bases after at least one head of the unit has exceeded its base. The new base of a head depends only
    // on that head.
    __device__ __forceinline__ void rebase(const float (&s)[N / 2], u32 b) {
#pragma unroll
        for (int k = 0; k < kOwn; ++k) {
            float high = fmaxf(s[k / 2 * 4 + k % 2], s[k / 2 * 4 + k % 2 + 2]) * args.score_scale;
#pragma unroll
            for (int d = 4; d < 32; d *= 2) {
                high = fmaxf(high, __shfl_xor_sync(ptx::kFullMask, high, d));
            }
            if (at.lane < 4) {
                shared.peaks[at.warp][head_at(k)] = high;
            }
        }
        ptx::group_sync<1, 128>();
#pragma unroll
        for (int k = 0; k < kOwn; ++k) {
            const i32 h = head_at(k);
            const float high = fmaxf(fmaxf(read(shared.peaks[0][h]), read(shared.peaks[1][h])),
                fmaxf(read(shared.peaks[2][h]), read(shared.peaks[3][h])));
            const float n = high > base[k] + kSlack ? high : base[k], f = exp2_fast(base[k] - n);
            base[k] = n;
            sum[k] *= f;
            if (at.warp == 0 && at.lane < 4) {
                shared.factor[b][h] = f;
            }
        }
    }

    // Sums the weights of a unit over lanes and warps, and publishes the final factors.
    __device__ __forceinline__ void finish(const Piece& p) {
#pragma unroll
        for (int k = 0; k < kOwn; ++k) {
            float all = sum[k];
#pragma unroll
            for (int d = 4; d < 32; d *= 2) {
                all += __shfl_xor_sync(ptx::kFullMask, all, d);
            }
            if (at.lane < 4) {
                shared.sums[at.warp][head_at(k)] = all;
                if (at.warp == 0) {
                    shared.base[head_at(k)] = base[k];
                }
            }
        }
        ptx::group_sync<1, 128>();
        ptx::barrier_wait(ptx::shared_address(&shared.final_empty), (units & 1) ^ 1);
        const u32 h = threadIdx.x % 128;
        if (h < N) {
            float all = 0.0f;
#pragma unroll
            for (int w = 0; w < 4; ++w) {
                all += read(shared.sums[w][h]);
            }
            const float m = read(shared.base[h]);
            const i32 head = p.head + static_cast<i32>(h);
            shared.final[h] = args.segments == 1 ? final_factor(args, sink_of(args, head), m, all)
                                                 : all > 0.0f ? 1.0f / all : 0.0f;
            if (head < args.heads) {
                save(p, head, m, all);
            }
        }
        ptx::barrier_arrive(ptx::shared_address(&shared.final_full));
        ++units;
    }

    // Writes the softmax statistics of a head. This kernel does not track the largest score and writes the base m in
    // its place, so a launch must not use args.max.
    __device__ __forceinline__ void save(const Piece& p, i32 head, float m, float all) const {
        if (args.segments == 1) {
            write_stats(args, p.row, head, m, m, all);
        } else {
            write_part_stats(args, static_cast<i64>(p.row) * args.segments + p.segment, head, m, m, all);
        }
    }

    __device__ __forceinline__ void run() {
        const Walk<N> walk(args);
#pragma unroll 1
        for (u32 u = walk.first; u < walk.end; u += walk.step) {
            const Piece p = walk.at(args, u);
            if (p.blocks == 0) {  // the combine kernel reads only segments that have keys
                const u32 h = threadIdx.x % 128;
                if (args.segments == 1 && h < N && p.head + static_cast<i32>(h) < args.heads) {
                    write_stats(args, p.row, p.head + static_cast<i32>(h), kLowest, kLowest, 0.0f);
                }
                continue;
            }
            if (p.fresh && u != walk.first) {
                ptx::group_sync<1, 128>();  // all warps have finished the scores that read the previous queries
                take_queries<N, 128>(args, shared, p, threadIdx.x % 128);
                ptx::group_sync<1, 128>();
            }
#pragma unroll
            for (int k = 0; k < kOwn; ++k) {
                base[k] = kLowest;
                sum[k] = 0.0f;
            }
#pragma unroll 1
            for (i32 left = p.blocks; left > 0; --left) {
                float s[N / 2];
                declare(s);
                const i32 valid = multiply(s);
                weigh(s, valid);
                ++done;
                stage.step();
            }
            finish(walk.at(args, u));
        }
    }
};

// A value group: output columns 256 * half to 256 * half + 255, as [256 columns, N heads]. Row r of a tile of 64
// columns is column 16 (r / 16) + 2 (r % 8) + r / 8 % 2, because the codes of two adjacent columns are loaded together.
template <int N>
struct TurnedValues {
    const SparseAttendArgs& args;
    TurnedStorage<N>& shared;
    i32 half;
    Corner at;
    Stage stage;
    u32 done = 0, units = 0;

    __device__ __forceinline__ TurnedValues(const SparseAttendArgs& a, TurnedStorage<N>& s, i32 h)
        : args(a), shared(s), half(h) {}

    // Converts the codes of 32 keys and 16 columns to the A operands of two steps of 16 keys.
    static __device__ __forceinline__ void convert(u32 (&a)[2][4], const u32 (&r)[4], const u32 (&scale)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 both = __byte_perm(r[i], 0, 0x3120);
            a[i / 2][i % 2 * 2] = times(widen_low(both), scale[i]);
            a[i / 2][i % 2 * 2 + 1] = times(widen_high(both), scale[i]);
        }
    }

    // Loads and converts the codes of step i of a block: 128 columns (bit 2), 32 keys (bit 1), 64 columns (bit 0). Even
    // steps load the scales for the next step, too.
    __device__ __forceinline__ void take(u32 (&a)[2][4], u32 (&scale)[4], u32 row, u32 b, int i) const {
        const int m = i / 4 * 2 + i % 2, pair = i / 2 % 2;
        if (i % 2 == 0) {
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                scale[k] = read(*reinterpret_cast<const u32*>(
                    &shared.scales[b][half * 2 + m / 2][pair * 32 + k * 8 + at.lane % 4 * 2]));
            }
        }
        u32 r[4];
        ptx::load_matrices_across(r, row + pair * (32 * kRowBytes) + m * 64);
        convert(a, r, scale);
    }

    __device__ __forceinline__ void block(float (&o)[4][N / 2], bool first, bool last) {
        const u32 b = done & 1, parity = done >> 1 & 1;
        ptx::barrier_wait(ptx::shared_address(&shared.weights_full[b]), parity);
        const u32 row = ptx::shared_address(shared.keys[stage.at]) + at.lane * kRowBytes + half * 256 + at.warp * 16;
        const u64 weights = ptx::operand_128b_across(ptx::shared_address(shared.weights[b]), kTileBytes);
        // The first codes are loaded and converted before the wait. The others are loaded and converted while the
        // previous codes are multiplied.
        u32 a[2][2][4], scale[4];
        take(a[0], scale, row, b, 0);
        // The products with values should overlap the next softmax and not delay the next scores.
        if ((kLag >> half & 1) && !last) {
            ptx::barrier_wait(ptx::shared_address(&shared.scores_done[b ^ 1]), (done + 1) >> 1 & 1);
        }
        if (!first && read(shared.moved[b]) != 0) {
#pragma unroll
            for (int k = 0; k < N / 4; ++k) {
                const float f = read(shared.factor[b][k / 2 * 8 + at.lane % 4 * 2 + k % 2]);
                const int i = k / 2 * 4 + k % 2;
#pragma unroll
                for (int m = 0; m < 4; ++m) {
                    o[m][i] *= f;
                    o[m][i + 2] *= f;
                }
            }
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int m = i / 4 * 2 + i % 2, pair = i / 2 % 2;
            if (i > 0) {
                take(a[i % 2], scale, row, b, i);
            }
            if (i == 7) {
                arrive(shared.empty[stage.at]);
            }
            ptx::mma_pin(o[m]);
            ptx::mma_fence();
#pragma unroll
            for (int step = 0; step < 2; ++step) {
                ptx::Turned<N>::across(o[m], a[i % 2][step], weights + (pair * 2 + step) * 16 * 128 / 16,
                    pair + step > 0 || !first);
            }
            ptx::mma_commit();
            ptx::mma_wait<1>();
        }
        ptx::mma_wait<0>();
#pragma unroll
        for (int m = 0; m < 4; ++m) {
            ptx::mma_pin(o[m]);
        }
        arrive(shared.weights_empty[b]);
        ++done;
        stage.step();
    }

    __device__ __forceinline__ void write(const Piece& p, const float (&o)[4][N / 2]) {
        const u32 t = at.lane % 4, g = at.lane / 4;
        ptx::barrier_wait(ptx::shared_address(&shared.final_full), units & 1);
        ++units;
        const bool whole = args.segments == 1;
        const i64 piece = (static_cast<i64>(p.row) * args.segments + p.segment) * head_groups(args) + p.head / kHeads;
        u8* part = static_cast<u8*>(args.partial) + (piece * 2 + half) * Parts<ptx::F16>::kHalfBytes;
        u16* out = args.out + p.row * args.out_stride + half * kHalfColumns + at.warp * 16 + g * 2;
#pragma unroll
        for (int j = 0; j < N / 8; ++j) {
            const i32 h = j * 8 + t * 2;
            const float f0 = read(shared.final[h]), f1 = read(shared.final[h + 1]);
#pragma unroll
            for (int m = 0; m < 4; ++m) {
                const float* x = &o[m][j * 4];
                if (whole) {
                    const i32 head = p.head + h;
                    u32* to = reinterpret_cast<u32*>(out + static_cast<i64>(head) * kValues + m * 64);
                    if (head < args.heads) {
                        to[0] = ptx::Bf16::pack(x[0] * f0, x[2] * f0);
                    }
                    if (head + 1 < args.heads) {
                        to[kValues / 2] = ptx::Bf16::pack(x[1] * f1, x[3] * f1);
                    }
                } else {
                    // The layout that combine.cuh reads (Parts): lanes with g < 4 take the even head, the others the
                    // odd head.
                    const u32 even = ptx::F16::pack(x[0] * f0, x[2] * f0), odd = ptx::F16::pack(x[1] * f1, x[3] * f1);
                    const u32 got = __shfl_xor_sync(ptx::kFullMask, g < 4 ? odd : even, 16);
                    const u32 own = static_cast<u32>(p.head % kHeads + h) + (g < 4 ? 0 : 1);
                    const u32 to = ((own / 8 % 2) * 8 + m * 2 + at.warp / 2) * static_cast<u32>(
                        Parts<ptx::F16>::kEighthBytes) + (own / 16 * 32 + own % 8 * 4 + g % 4) * 16 + at.warp % 2 * 8;
                    *reinterpret_cast<uint2*>(part + to) = g < 4 ? make_uint2(even, got) : make_uint2(got, odd);
                }
            }
        }
        arrive(shared.final_empty);
    }

    __device__ __forceinline__ void run() {
        const Walk<N> walk(args);
#pragma unroll 1
        for (u32 u = walk.first; u < walk.end; u += walk.step) {
            float o[4][N / 2];
#pragma unroll
            for (int m = 0; m < 4; ++m) {
                declare(o[m]);
            }
            {
                const Piece p = walk.at(args, u);
                if (p.blocks == 0) {
                    zeros(p);
                    continue;
                }
#pragma unroll 1
                for (i32 i = 0; i < p.blocks; ++i) {
                    block(o, i == 0, i + 1 == p.blocks);
                }
            }
            asm volatile("" : "+r"(u));  // only the number of the unit is kept in a register while the unit runs
            write(walk.at(args, u), o);
        }
    }

    __device__ __forceinline__ void zeros(const Piece& p) const {
        if (args.segments > 1) {
            return;
        }
#pragma unroll 1
        for (i32 head = p.head + at.warp; head < min(p.head + N, args.heads); head += 4) {
            u16* to = args.out + p.row * args.out_stride + static_cast<i64>(head) * kValues + half * kHalfColumns;
            *reinterpret_cast<uint4*>(to + at.lane * 8) = make_uint4(0, 0, 0, 0);
        }
    }
};

// Loads pages into the ring, by one thread. Page-table entries are read one page ahead.
template <int N>
__device__ __forceinline__ void fetch_pages(const SparseAttendArgs& args, TurnedStorage<N>& shared) {
    const SelectionView& s = args.streams[0];
    Stage stage;
    ptx::wait_for_previous_kernel();  // the previous kernel may have written the last row of a sequence
    const Walk<N> walk(args);
#pragma unroll 1
    for (u32 u = walk.first; u < walk.end; u += walk.step) {
        const i32* table;
        i32 keys, left;  // keys and blocks from the unit's first block to its end
        {
            const Piece p = walk.at(args, u);
            table = list_of(args, s, p.row) + p.block;
            keys = p.length - p.block * kKeys;
            left = p.blocks;
        }
        i32 page = left > 0 ? *table : 0;
#pragma unroll 1
        for (; left > 0; --left, keys -= kKeys) {
            ++table;
            const i32 next = left > 1 ? *table : 0;
            const i32 room = page < 0 ? 0 : page > s.slots / kKeys ? -1 : s.slots - page * kKeys;
            const i32 valid = max(min(min(keys, kKeys), room), 0);
            if (page >= 0 && room < min(keys, kKeys) && args.faults != nullptr) {
                atomicOr(args.faults, kFaultPage);
            }
            const u32 full = ptx::shared_address(&shared.full[stage.at]);
            ptx::barrier_wait(ptx::shared_address(&shared.empty[stage.at]), stage.parity ^ 1);
            *const_cast<volatile i32*>(&shared.valid[stage.at]) = valid;
            if (valid > 0) {
                ptx::barrier_expect(full, valid * kRowBytes);
                ptx::load_bytes(ptx::shared_address(shared.keys[stage.at]), s.base +
                    static_cast<i64>(page) * s.page_bytes, valid * kRowBytes, full, kEvictNormal);
            } else {
                ptx::barrier_arrive(full);
            }
            page = next;
            stage.step();
        }
    }
}

template <int N>
__device__ __forceinline__ void attend_turned(const SparseAttendArgs& args) {
    TurnedStorage<N>& shared = shared_memory<TurnedStorage<N>>();
    if (threadIdx.x == 0) {
        init_barriers(shared);
    }
    __syncthreads();
    list_units(args, Walk<N>::groups(args));  // lengths were written before the previous kernel
    const u32 group = __shfl_sync(ptx::kFullMask, threadIdx.x / 128, 0);
    if (group < 3) {
        // All three math groups load the first queries, because they are idle until the first keys arrive.
        const Walk<N> walk(args);
        ptx::wait_for_previous_kernel();
        if (walk.first < walk.end) {
            take_queries<N, 384>(args, shared, walk.at(args, walk.first), threadIdx.x);
        }
        ptx::group_sync<2, 384>();
    }
    if (group == 0) {
        ptx::registers_grow<kScoreRegisters>();
        TurnedScores<N>(args, shared).run();
    } else if (group < 3) {
        ptx::registers_grow<kValueRegisters>();
        TurnedValues<N>(args, shared, static_cast<i32>(group) - 1).run();
    } else {
        ptx::registers_shrink<kFetchRegisters>();
        if (threadIdx.x == kTurnedThreads - 128) {
            fetch_pages<N>(args, shared);
            ptx::release_next_kernel();
        }
    }
}

}  // namespace sparrow_latent
