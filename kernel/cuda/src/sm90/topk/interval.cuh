// Estimates from a sample of a row an interval of scores that contains its k-th largest, and classifies scores by an
// interval into words of bits. The interval affects only speed, never the result.
#pragma once

#include "sm90/topk/row.cuh"
#include "sm90/topk/select.cuh"

namespace sparrow_topk {

constexpr u32 kKeyInf = 0xFF800000u;
constexpr u32 kLowestKey = kKeyMinusInf + 1;  // smallest key that can be selected

// An interval of keys, from low to high inclusive.
struct Interval {
    u32 low, high;
    bool refine;  // according to the sample, more scores are inside than fit in the list
};

template <class Each>
__device__ __forceinline__ void visit(float4 v, const Each& each) {
    each(v.x), each(v.y), each(v.z), each(v.w);
}

// Linear bins over scores. Scores outside the range are counted in the first or the last bin, and NaN in the first.
template <int Bins>
struct SampleBins {
    float low, width;    // low: smallest score; width: range of all bins together
    float scale, shift;  // (score - low) / width = score * scale + shift

    __device__ __forceinline__ u32 of(float score) const {
        const float share = __saturatef(__fmaf_rn(score, scale, shift));
        // Adding 2^23 rounds to an integer.
        return __float_as_uint(__fmaf_rn(share, Bins - 1, 8388608.0f)) - 0x4B000000u;
    }

    // Returns approximately the smallest score of a bin.
    __device__ __forceinline__ float edge(u32 bin) const { return low + (bin - 0.5f) * (width / (Bins - 1)); }

    // Reports whether the bins can be used. They cannot if the scores are almost equal.
    __device__ __forceinline__ bool placed() const { return width > 0.0f && scale < 1e30f && fabsf(shift) < 1e6f; }
};

// Mean and variance of the scores that are neither NaN nor huge, from one quad per lane. Every warp computes them
// separately. Rounding can make the variance negative.
struct Moments {
    float mean, variance;

    __device__ __forceinline__ explicit Moments(float4 quad) {
        float ones = 0, sum = 0, squares = 0;
        visit(quad, [&](float x) {
            if (fabsf(x) < 1e18f) {
                ones += 1.0f;
                sum += x;
                squares = __fmaf_rn(x, x, squares);
            }
        });
#pragma unroll
        for (int d = 16; d > 0; d /= 2) {
            ones += __shfl_xor_sync(ptx::kFullMask, ones, d);
            sum += __shfl_xor_sync(ptx::kFullMask, sum, d);
            squares += __shfl_xor_sync(ptx::kFullMask, squares, d);
        }
        const float each = __fdividef(1.0f, fmaxf(ones, 1.0f));
        mean = sum * each;
        variance = squares * each - mean * mean;
    }
};

// Returns bins from three standard deviations below the mean to five above it, for one quad of scores per lane.
template <int Bins>
__device__ __forceinline__ SampleBins<Bins> place_bins(float4 quad) {
    const Moments of(quad);
    const float mean = of.mean;
    // The inverse is infinite if all scores are equal.
    const float variance = fmaxf(of.variance, 0.0f), inverse = rsqrtf(variance);
    const float spread = variance > 0.0f ? variance * inverse : 0.0f;
    SampleBins<Bins> bins{mean - 3.0f * spread, 8.0f * spread, 0.125f * inverse, 0};
    bins.shift = -bins.low * bins.scale;
    return bins;
}

// An estimate from a sample: the number of the k largest scores that are expected in the sample (expected), the margin
// of error, and the number of scores of the row per sampled score (each).
struct Estimate {
    float expected, margin, each;

    // The margin is five standard deviations, plus a few scores that are not covered by the sample.
    __device__ __forceinline__ Estimate(i32 k, float standing_for, float beyond)
        : expected(__fdividef(static_cast<float>(k), standing_for)),
          margin(5.0f * __fsqrt_rn(expected * (1.0f - __fdividef(1.0f, standing_for))) + beyond),
          each(standing_for) {}

    // Return the ranks in the sample between which the k-th largest score of the row lies.
    __device__ __forceinline__ u32 last() const { return static_cast<u32>(expected + margin); }
    __device__ __forceinline__ u32 best() const { return static_cast<u32>(fmaxf(expected - margin, 1.0f)); }
};

// Returns the interval of keys between the bins of the last and the best rank of an estimate. Sets refine if more than
// `most` scores are inside.
template <int Bins>
__device__ __forceinline__ Interval interval_between(const SampleBins<Bins>& bins, const BinRank& last,
    const BinRank& best, const Estimate& e, u32 most) {
    Interval v{kLowestKey, kKeyInf, false};
    if (last.inside && last.bin > 0) {
        v.low = key_of(bins.edge(last.bin));
    }
    if (e.expected > e.margin + 1.0f && best.inside && best.bin < Bins - 1) {
        v.high = key_of(bins.edge(best.bin + 1));
    }
    v.refine = last.inside == 0 || e.each * (last.above + last.inside - best.above) > most || v.low >= v.high;
    if (v.refine) {
        // Checks for one value that occurs many times, such as zero after a ReLU.
        const u32 tied = bins.placed() ? key_of(0.0f) : key_of(bins.low);
        v = tied >= v.low && tied <= v.high ? Interval{tied, tied, false} : v.low < v.high ? v
            : Interval{kLowestKey, kKeyInf, true};
    }
    return v;
}

// Returns a mask of the positions in a word of 32 that belong to the row.
__device__ __forceinline__ u32 valid_places(const Row& w, u32 word) {
    const i32 left = w.end() - static_cast<i32>(word * 32);
    const u32 bits = left >= 32 ? ~0u : left <= 0 ? 0u : (1u << left) - 1;
    return word == 0 ? bits & ~0u << w.head : bits;
}

// Computes bits for the 32 scores of a word: above the interval, and inside it. Lane l starts with quad l % 8 of its
// 128 bytes, so that the eight lanes of a part of the load have no bank conflicts; the words are rotated back at the
// end. AtOnce quads are loaded together.
template <int AtOnce = 8>
__device__ __forceinline__ void scan_word(const float* scores, u32 lane, const Interval& v, u32& above_bits,
    u32& inside_bits) {
    const float above = score_of(v.high), below = score_of(just_below(v.low));
    u32 a = 0, b = 0;  // the first score in bit 31; a set bit is the sign of threshold - score, which NaN does not have
#pragma unroll AtOnce
    for (u32 q = 0; q < 8; ++q) {
        const float4 x = reinterpret_cast<const float4*>(scores)[(q + lane) % 8];
        visit(x, [&](float score) {
            a = __funnelshift_l(__float_as_uint(above - score), a, 1);
            b = __funnelshift_l(__float_as_uint(below - score), b, 1);
        });
    }
    const u32 turn = lane % 8 * 4;
    a = __brev(a);
    b = __brev(b);
    above_bits = __funnelshift_l(a, a, turn);
    inside_bits = __funnelshift_l(b, b, turn) & ~above_bits;
}

// Returns word with only its first wanted - before set bits; before is the number of set bits of earlier words.
__device__ __forceinline__ u32 first_bits(u32 word, u32 before, u32 wanted) {
    if (before >= wanted) {
        return 0;
    }
    for (u32 upto = before + __popc(word); upto > wanted; --upto) {
        word ^= 0x80000000u >> __clz(word);
    }
    return word;
}

// Sets the keys of this thread's list entries and returns the candidate that separates the `wanted` largest from the
// rest. If no range is given, the range of the list is used.
template <class M>
__device__ __forceinline__ u64 cut_list(M& shared, Place at, u32 (&keys)[M::Shape::ListSteps], u32 count, u32 wanted,
    bool ranged, KeyRange range) {
    using S = typename M::Shape;
    KeyRange own{~0u, 0};
#pragma unroll
    for (int s = 0; s < S::ListSteps; ++s) {
        const u32 i = s * S::Threads + at.thread;
        keys[s] = i < count ? key_of(shared.values[i]) : 0;
        own.low = keys[s] ? min(own.low, keys[s]) : own.low;
        own.high = max(own.high, keys[s]);
    }
    if (!ranged) {
        key_range(shared, at, own.low, own.high);
        range = own;
    }
    return find_cut(shared, at, keys, count, wanted, range);
}

// Calls each(place) for those of this thread's list entries that are selected: at or above the cut.
template <class M, class Each>
__device__ __forceinline__ void each_winner(M& shared, Place at, const u32 (&keys)[M::Shape::ListSteps], u32 count,
    u64 cut, const Each& each) {
    using S = typename M::Shape;
    const u32 cut_key = candidate_key(cut), cut_low = static_cast<u32>(cut);
#pragma unroll
    for (int s = 0; s < S::ListSteps; ++s) {
        if (s * S::Threads < count && keys[s] != 0 && keys[s] >= cut_key) {
            const u32 place = shared.positions[s * S::Threads + at.thread];
            if (keys[s] > cut_key || ~place >= cut_low) {
                each(place);
            }
        }
    }
}

// Reports whether every word of 32 positions lies in one page, so that the page of a word can be loaded before its
// winners are known.
__device__ __forceinline__ bool words_in_pages(const TopKArgs& args, const Row& w) {
    return args.transform == kTopKPaged && args.page_shift >= 5 && w.head == 0 && !args.via;
}

__device__ __forceinline__ i32 page_of(const TopKArgs& args, const Row& w, const i32* table, u32 word) {
    const i32 place = word * 32;
    return place < w.length ? table[place >> args.page_shift] : 0;
}

// Writes the winners of one word to staged, starting at staged[rank]. If `paged` is set, `page` is the page of the
// word.
__device__ __forceinline__ void stage_word(const TopKArgs& args, const Row& w, u32 word, u32 bits, bool paged, i32 page,
    i32* staged, u32 rank) {
    const i32 place = word * 32 - w.head;
    if (paged) {
        const i32 slot = page << args.page_shift | (place & ((1 << args.page_shift) - 1));
        for (u32 left = bits; left; left &= left - 1) {
            staged[rank++] = slot + __ffs(left) - 1;
        }
    } else {
        for (u32 left = bits; left; left &= left - 1) {
            staged[rank++] = transformed(args, w, place + __ffs(left) - 1);
        }
    }
}

// Copies a staged row to the output. A barrier must have followed the staging.
template <int Threads>
__device__ __forceinline__ void store_staged(const TopKArgs& args, i32 v, const i32* staged,
    u32 thread = threadIdx.x) {
    i32* out = args.out + static_cast<i64>(v) * args.k;
    if ((reinterpret_cast<u64>(out) | static_cast<u32>(args.k) * sizeof(i32)) % 16 == 0) {
        for (i32 i = thread; i < args.k / 4; i += Threads) {
            reinterpret_cast<int4*>(out)[i] = reinterpret_cast<const int4*>(staged)[i];
        }
    } else {
        for (i32 i = thread; i < args.k; i += Threads) {
            out[i] = staged[i];
        }
    }
}

}  // namespace sparrow_topk
