// A math warpgroup: 64 query rows of a unit against its tiles of keys, from the last to the first.
//
// Scores of a tile are asked for together with the product of the weights and values of the tile before, so that the tensor cores have work
// while the softmax runs; the two warpgroups take turns, so that one's softmax falls into the other's products.
//
// Bits: a row's sums depend on the row, its keys and the bounds of tiles, which are counted from its first key. Tiles that a row does not
// see come before its own and leave sums of zero; keys inside a tile that it does not see have weight zero.
#pragma once

#include "ptx/wgmma.cuh"
#include "sm90/dense/output.cuh"

namespace sparrow_dense {

// Exponents are relative to a base that follows a row's largest score only when that has outgrown it by this much, in base 2: the output is
// rescaled in few tiles, and weights reach 2^8 at most. What a row does depends on the row alone.
constexpr float kSlack = 8.0f;

// The base of a row that has seen no key: finite, so that nothing becomes NaN.
constexpr float kLowest = -1e30f;

__device__ __forceinline__ float exp2_fast(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

// Declares accumulators whose first product overwrites them.
template <int N>
__device__ __forceinline__ void declare(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
        asm volatile("" : "=f"(d[i]));
    }
}

// The operand some bytes further: only the lower word of a descriptor changes, and the compiler is told so.
__device__ __forceinline__ u64 further(u64 operand, u32 bytes) {
    u64 r;
    asm("mov.b64 %0, {%1, %2};" : "=l"(r) : "r"(static_cast<u32>(operand) + bytes / 16), "r"(static_cast<u32>(operand >> 32)));
    return r;
}

template <class S, bool Turns>
struct MathGroup {
    static constexpr int Scores = S::Keys / 2;     // of a thread
    static constexpr int Outputs = S::Columns / 2;

    const DenseAttendArgs& args;
    Storage<S>& shared;
    const Corner at;
    const float scale;
    Cursor<kStages> keys, values;
    float base[2], sum[2];  // of this lane's rows: what exponents are relative to, in base 2, and this lane's part of the sum
    i32 len[2];

    __device__ __forceinline__ MathGroup(const DenseAttendArgs& a, Storage<S>& s, i32 group) : args(a), shared(s), at(group), scale(a.score_scale) {}

    // Asks for the scores of the next tile of keys.
    __device__ __forceinline__ void multiply_scores(float (&s)[Scores]) {
        const u64 q = ptx::operand_128b(ptx::shared_address(shared.q[at.group])), k = ptx::operand_128b(ptx::shared_address(shared.k[keys.stage]));
        ptx::mma_pin(s);
        ptx::mma_fence();
#pragma unroll
        for (int i = 0; i < S::Query * 4; ++i) {
            ptx::Wide<S::Keys>::scores(s, further(q, i / 4 * S::QueryTileBytes + i % 4 * 32), further(k, i / 4 * S::KeyTileBytes + i % 4 * 32), i != 0);
        }
        ptx::mma_commit();
    }

    // Asks for the product of weights and the next tile of values.
    __device__ __forceinline__ void multiply_values(float (&o)[Outputs], const u32 (&p)[S::Steps][4], bool first) {
        const u64 v = ptx::operand_128b_across(ptx::shared_address(shared.v[values.stage]), S::KeyTileBytes);
        ptx::mma_pin(o);
        ptx::mma_fence();
#pragma unroll
        for (int step = 0; step < S::Steps; ++step) {
            ptx::Wide<S::Columns>::values(o, p[step], further(v, step * 16 * kTileRowBytes), step > 0 || !first);
        }
        ptx::mma_commit();
    }

    // Values of keys that no row of the unit sees become zeros: they may be anything, and zero times NaN is NaN. Both math warpgroups write the
    // same zeros before their own products.
    __device__ __forceinline__ void clear_values(i32 seen) {
        const u32 tile = ptx::shared_address(shared.v[values.stage]);
        const u32 bytes = (S::Keys - seen) * kTileRowBytes;
#pragma unroll 1
        for (int c = 0; c < S::Value; ++c) {
            const u32 from = tile + c * S::KeyTileBytes + seen * kTileRowBytes;
#pragma unroll 1
            for (u32 b = threadIdx.x % 128 * 16; b < bytes; b += 128 * 16) {
                asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(from + b), "r"(0) : "memory");
            }
        }
        ptx::fence_async_proxy();
        at.group == 0 ? ptx::group_sync<1, 128>() : ptx::group_sync<2, 128>();
    }

    // Scores of keys at and beyond a row's length, which is counted from the tile's first key, become -inf.
    __device__ __forceinline__ void mask(float (&s)[Scores], i32 first_key) const {
        const float never = __int_as_float(0xFF800000);
        const i32 seen0 = len[0] - first_key - 2 * static_cast<i32>(at.pair), seen1 = len[1] - first_key - 2 * static_cast<i32>(at.pair);
#pragma unroll
        for (int i = 0; i < Scores; i += 4) {
            const int column = i * 2;
            s[i] = column < seen0 ? s[i] : never;
            s[i + 1] = column + 1 < seen0 ? s[i + 1] : never;
            s[i + 2] = column < seen1 ? s[i + 2] : never;
            s[i + 3] = column + 1 < seen1 ? s[i + 3] : never;
        }
    }

    // Scores to weights in place. factor becomes what the output so far is multiplied by; false when that is one in the whole warp.
    __device__ __forceinline__ bool softmax(float (&s)[Scores], float (&factor)[2]) {
        float high0 = fmaxf(s[0], s[1]), high1 = fmaxf(s[2], s[3]);
#pragma unroll
        for (int i = 4; i < Scores; i += 4) {
            high0 = fmaxf(high0, fmaxf(s[i], s[i + 1]));
            high1 = fmaxf(high1, fmaxf(s[i + 2], s[i + 3]));
        }
        high0 *= scale;
        high1 *= scale;
        factor[0] = factor[1] = 1.0f;
        bool moved = false;
        if (__any_sync(ptx::kFullMask, high0 > base[0] + kSlack || high1 > base[1] + kSlack)) {  // some row of the warp has outgrown its base
            moved = true;
#pragma unroll
            for (int d = 1; d < 4; d *= 2) {
                high0 = fmaxf(high0, __shfl_xor_sync(ptx::kFullMask, high0, d));
                high1 = fmaxf(high1, __shfl_xor_sync(ptx::kFullMask, high1, d));
            }
            if (high0 > base[0] + kSlack) {
                factor[0] = exp2_fast(base[0] - high0);
                base[0] = high0;
            }
            if (high1 > base[1] + kSlack) {
                factor[1] = exp2_fast(base[1] - high1);
                base[1] = high1;
            }
        }
        float sum0 = 0.0f, sum1 = 0.0f;
#pragma unroll
        for (int i = 0; i < Scores; i += 4) {
            s[i] = exp2_fast(fmaf(s[i], scale, -base[0]));
            s[i + 1] = exp2_fast(fmaf(s[i + 1], scale, -base[0]));
            s[i + 2] = exp2_fast(fmaf(s[i + 2], scale, -base[1]));
            s[i + 3] = exp2_fast(fmaf(s[i + 3], scale, -base[1]));
            sum0 += s[i] + s[i + 1];
            sum1 += s[i + 2] + s[i + 3];
        }
        sum[0] = fmaf(sum[0], factor[0], sum0);
        sum[1] = fmaf(sum[1], factor[1], sum1);
        return moved;
    }

    static __device__ __forceinline__ void pack(u32 (&p)[S::Steps][4], const float (&s)[Scores]) {
#pragma unroll
        for (int i = 0; i < Scores / 2; ++i) {
            p[i / 4][i % 4] = ptx::Bf16::pack(s[2 * i], s[2 * i + 1]);
        }
    }

    // Multiplies the accumulator's two rows. Warps whose factors are all one leave it out, which changes no bit.
    static __device__ __forceinline__ void rescale(float (&o)[Outputs], const float (&factor)[2]) {
#pragma unroll
        for (int i = 0; i < Outputs; i += 4) {
            o[i] *= factor[0];
            o[i + 1] *= factor[0];
            o[i + 2] *= factor[1];
            o[i + 3] *= factor[1];
        }
    }

    // Turns of the two warpgroups at asking for products; both run through the same number of them.
    __device__ __forceinline__ void take_turn() const {
        if constexpr (Turns) {
            at.group == 0 ? ptx::group_sync<3, 256>() : ptx::group_sync<4, 256>();
        }
    }
    __device__ __forceinline__ void give_turn() const {
        if constexpr (Turns) {
            at.group == 0 ? group_arrive<4, 256>() : group_arrive<3, 256>();
        }
    }

    // Scores of tile t, which are there, to weights in place.
    __device__ __forceinline__ bool weigh(float (&s)[Scores], i32 t, i32 whole, float (&factor)[2]) {
        ptx::mma_pin(s);
        arrive(shared.k_empty[keys.stage]);
        keys.advance();
        if (t >= whole) {
            mask(s, t * S::Keys);
        }
        return softmax(s, factor);
    }

    // Waits for the product that is on its way, brings its sums to the present bases and frees its values.
    __device__ __forceinline__ void finish_product(float (&o)[Outputs], bool moved, const float (&factor)[2]) {
        ptx::mma_wait<0>();
        ptx::mma_pin(o);
        arrive(shared.v_empty[values.stage]);
        values.advance();
        if (moved) {
            rescale(o, factor);
        }
    }

    // Lets the last tiles of a unit pass that the other warpgroup alone sees, and turns with them.
    __device__ __forceinline__ void skip(i32 tiles, i32 turns) {
#pragma unroll 1
        for (i32 t = 0; t < tiles; ++t) {
            wait(shared.k_full[keys.stage], keys.parity);
            arrive(shared.k_empty[keys.stage]);
            keys.advance();
            wait(shared.v_full[values.stage], values.parity);
            arrive(shared.v_empty[values.stage]);
            values.advance();
            if (t < turns) {
                take_turn();
                give_turn();
            }
        }
    }

    // The tiles of a unit that rows of this warpgroup see: `most` keys, of the unit's `limit`. whole: leading tiles without a mask. The wait for a
    // product stands at the head of the loop and the softmax that runs beside the product at its end: inside one block of instructions the
    // compiler would put the wait first.
    __device__ __forceinline__ void run_unit(float (&o)[Outputs], i32 most, i32 limit, i32 whole) {
        float s[Scores], factor[2];
        u32 p[S::Steps][4];
        const i32 last = tiles_of<S>(most) - 1, seen = limit - last * S::Keys;  // keys of the last tile that some row of the unit sees, or more
        declare(s);
        base[0] = base[1] = kLowest;
        sum[0] = sum[1] = 0.0f;
        wait(shared.k_full[keys.stage], keys.parity);
        multiply_scores(s);
        ptx::mma_wait<0>();
        bool moved = weigh(s, last, whole, factor);
#pragma unroll 1
        for (i32 t = last - 1; t >= 0; --t) {
            const bool first = t == last - 1;
            if (!first) {
                finish_product(o, moved, factor);
            }
            pack(p, s);
            wait(shared.k_full[keys.stage], keys.parity);
            take_turn();
            multiply_scores(s);
            wait(shared.v_full[values.stage], values.parity);
            if (first && seen < S::Keys) {
                clear_values(seen);
            }
            multiply_values(o, p, first);
            give_turn();
            ptx::mma_wait<1>();
            moved = weigh(s, t, whole, factor);
        }
        arrive(shared.q_empty[at.group]);
        if (last > 0) {
            finish_product(o, moved, factor);
        }
        pack(p, s);
        wait(shared.v_full[values.stage], values.parity);
        if (last == 0 && seen < S::Keys) {
            clear_values(seen);
        }
        multiply_values(o, p, last == 0);
        finish_product(o, false, factor);
    }

    __device__ __forceinline__ void run() {
        Cursor<kRecords> ring;
        u32 units = 0;  // with keys
        if constexpr (Turns) {
            if (at.group == 1) {
                give_turn();
            }
        }
#pragma unroll 1
        while (true) {
            wait(shared.record_full[ring.stage], ring.parity);
            const volatile Record& record = shared.records[ring.stage];
            const i32 row = record.row, rows = record.rows, head = record.head, tiles = record.tiles;
            const i32 most = record.most[at.group], limit = max(most, record.most[1 - at.group]), whole = record.whole[at.group];
            len[0] = record.lens[at.group * kGroupRows + at.row];
            len[1] = record.lens[at.group * kGroupRows + at.row + 8];
            arrive(shared.record_empty[ring.stage]);
            ring.advance();
            if (tiles < 0) {
                return;
            }
            if (tiles > 0) {
                wait(shared.q_full[at.group], units & 1);
                ++units;
                skip(tiles - tiles_of<S>(most), tiles - max(tiles_of<S>(most), 1));
            }
            if (most == 0) {
                if (tiles > 0) {
                    arrive(shared.q_empty[at.group]);
                }
                write_zeros<S>(args, at, row, rows, head);
                continue;
            }
            float o[Outputs];
            declare(o);
            run_unit(o, most, limit, whole);
            float inverse[2];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                sum[half] += __shfl_xor_sync(ptx::kFullMask, sum[half], 1);
                sum[half] += __shfl_xor_sync(ptx::kFullMask, sum[half], 2);
                inverse[half] = sum[half] > 0.0f ? 1.0f / sum[half] : 0.0f;
            }
            write_rows<S>(args, at, row, rows, head, o, inverse);
            write_lse(args, at, row, rows, head, base, sum);
        }
    }
};

}  // namespace sparrow_dense
