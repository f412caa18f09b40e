// Samples one token from every row of logits, with temperature, top_k, top_p, min_p and a random number.
//
// In:    logits f32 [rows, columns], columns up to 262144; the best column of every row; the sampling parameters of
//        the row.
// Out:   ids i32 [rows]: the sampled column. A row without a temperature, or whose best logit is not finite, gets its
//        best column.
// Equal: The Go package sample is the definition, and this kernel gives exactly its tokens. Every rounding is
//        explicit, no multiplication is fused with an addition, and weights are integers, whose sums do not depend on
//        their order. A test compiles this file for the CPU and compares the two (kernel/cuda/sample_test.go).
// Block: one row. One pass over the row adds the weights of all tokens to 1921 buckets by their distance from the
//        best logit. The tokens of the bucket in which top_k or top_p ends are listed and ranked. If the bucket has
//        more tokens than the list can hold, its keys are counted by 11 bits at a time until the remaining keys fit
//        the list; this takes at most five passes. Then the weights of the kept tokens are summed over segments of 128
//        columns, and the segment that contains the random number is searched column by column.
// Bytes: the logits are read once per pass, from L2: 1 pass for plain sampling, 3 with top_k or top_p, 4 with both.
//        Only the pass into buckets computes the weight of every token.
#pragma once
#include "smxx/key.cuh"
#include "smxx/sample/args.h"

constexpr i32 kSampleThreads = 768; // many warps, to hide the latency of float64 operations on weights
constexpr i32 kWeightBits = 44; // log2 of the weight of the best token
constexpr i32 kReach = 30;      // distance from the best logit, in temperatures, beyond which a token has weight 0
constexpr i32 kGrain = 64;      // buckets per temperature
constexpr i32 kBuckets = kReach * kGrain + 1;
constexpr i32 kBins = 2048; // maximum bins: of buckets, of values of 11 bits of a key, or of segments
constexpr i32 kParts = 32;  // parts of the bins, which are searched first
constexpr i32 kDigit = 11;
constexpr i32 kListed = 512; // capacity of the list: after 5 digits, at most 2^9 keys are left
constexpr i32 kSegment = 128;
constexpr i32 kLoaded = 4; // tokens that a thread loads together: a lane's tokens of a segment
constexpr i32 kDrawWords = 10;

// The parameters of a draw, as 10 words.
struct Draw {
    f64 inverse; // 1 / temperature
    f64 top_p;
    u64 least;  // minimum weight that min_p keeps
    u64 random; // random number, as a fraction of 2^64
    i64 top_k;
};
static_assert(sizeof(Draw) == 4 * kDrawWords, "a draw is ten words");

struct SampleShared {
    f64 scales[kBuckets]; // 2^44 * exp(-b / 64)
    // Mass (sum of weights) of a bin in two words, because a 64-bit atomic addition would be a loop of exchanges.
    u32 low[kBins], high[kBins];
    u32 count[kBins];
    u64 keys[kListed];
    u64 weights[kListed];
    u64 part_mass[kParts];
    u64 part_count[kParts];
    u64 before; // number or sum of weights of the tokens in the bins before the found bin
    u64 above;  // sum of weights of the keys before those of the found bin; later of all keys up to edge
    u64 edge;   // last key that is kept
    i32 bin;
    u32 listed;
};

// Returns 2^44 * exp(-b / 64) as a product of exp(-2^j / 64) over the bits of b, the lowest bit first.
DEVICE f64 sample_scale(i32 b) {
    f64 v = static_cast<f64>(1ull << kWeightBits);
    if (b & 1) v = __dmul_rn(v, 0x1.f80feabfeefa5p-1);
    if (b & 2) v = __dmul_rn(v, 0x1.f03f56a88b5d8p-1);
    if (b & 4) v = __dmul_rn(v, 0x1.e0fabfbc702a4p-1);
    if (b & 8) v = __dmul_rn(v, 0x1.c3d6a24ed8222p-1);
    if (b & 16) v = __dmul_rn(v, 0x1.8ebef9eac820bp-1);
    if (b & 32) v = __dmul_rn(v, 0x1.368b2fc6f960ap-1);
    if (b & 64) v = __dmul_rn(v, 0x1.78b56362cef38p-2);
    if (b & 128) v = __dmul_rn(v, 0x1.152aaa3bf81ccp-3);
    if (b & 256) v = __dmul_rn(v, 0x1.2c155b8213cf4p-6);
    if (b & 512) v = __dmul_rn(v, 0x1.5fc21041027adp-12);
    if (b & 1024) v = __dmul_rn(v, 0x1.e355bbaee85cbp-24);
    return v;
}

DEVICE i32 sample_bucket(f64 d) { return __double2int_rz(__dadd_rn(__dmul_rn(d, kGrain), 0.5)); }

// Returns the weight of a token in bucket b at distance d.
DEVICE u64 sample_weight(f64 scale, i32 b, f64 d) {
    f64 r = __dsub_rn(__dmul_rn(b, 1.0 / kGrain), d);
    f64 series = __dadd_rn(__dadd_rn(1.0, r), __dmul_rn(__dmul_rn(r, r), 0.5));
    return static_cast<u64>(__double2ll_rz(__dadd_rn(__dmul_rn(scale, series), 0.5)));
}

// Returns the smallest integer weight that is at least p * total.
DEVICE u64 sample_share(f64 p, u64 total) {
    return min(static_cast<u64>(__double2ll_ru(__dmul_rn(p, __ll2double_rn(static_cast<i64>(total))))), total);
}

// The sampling of one row. Every thread of the block must call every function; each begins and ends with a block
// barrier.
template <int Threads> struct Sampling {
    SampleShared& s;
    const f32* logits;
    i32 columns;
    f64 top, inverse;
    bool filled; // true: the bins hold the buckets

    // Calls visit(column, logit) for the tokens of this thread. kLoaded logits are loaded together, because the
    // compiler cannot move loads before the atomic additions of visit.
    template <class Visit> DEVICE void each(i32 from, i32 end, i32 step, Visit visit) {
        for (i32 c = from; c < end; c += kLoaded * step) {
            f32 v[kLoaded];
#pragma unroll
            for (int i = 0; i < kLoaded; i++) v[i] = c + i * step < end ? logits[c + i * step] : 0;
#pragma unroll
            for (int i = 0; i < kLoaded; i++)
                if (c + i * step < end) visit(c + i * step, v[i]);
        }
    }

    // Sets d to the distance of a token from the best logit, and reports whether it is within kReach. For NaN it
    // returns false.
    DEVICE bool reaches(f32 v, f64& d) {
        d = __dmul_rn(__dsub_rn(top, v), inverse);
        return d >= 0 && d < kReach;
    }

    // Returns the weight of a token that is kept, or 0. A token is kept if its key is not below edge and its weight
    // is not below least.
    DEVICE u64 kept(i32 c, f32 v, u64 edge, u64 least) {
        f64 d;
        if (candidate_key(v, c) < edge || !reaches(v, d)) return 0;
        i32 b = sample_bucket(d);
        u64 w = sample_weight(s.scales[b], b, d);
        return w >= least ? w : 0;
    }

    // Calls visit(key, weight) for the tokens of this thread that are in a bucket and whose keys have the given
    // prefix above bit `shift`. A shift of 64 means any key.
    template <class Visit> DEVICE void members(i32 bucket, u64 prefix, i32 shift, Visit visit) {
        each(threadIdx.x, columns, Threads, [&](i32 c, f32 v) {
            f64 d;
            if (!reaches(v, d) || sample_bucket(d) != bucket) return;
            u64 key = candidate_key(v, c);
            if (shift == 64 || key >> shift == prefix) visit(key, sample_weight(s.scales[bucket], bucket, d));
        });
    }

    DEVICE void make_scales() {
        for (i32 b = threadIdx.x; b < kBuckets; b += Threads) s.scales[b] = sample_scale(b);
        __syncthreads();
    }

    DEVICE u64 mass(i32 b) { return static_cast<u64>(s.high[b]) << 32 | s.low[b]; }
    DEVICE void set_mass(i32 b, u64 m) { s.low[b] = static_cast<u32>(m), s.high[b] = static_cast<u32>(m >> 32); }

    // Adds a token and its weight to a bin with atomic operations.
    DEVICE void put(i32 b, u64 weight) {
        atomicAdd(&s.count[b], 1u);
        u32 low = static_cast<u32>(weight), before = atomicAdd(&s.low[b], low);
        u32 high = static_cast<u32>(weight >> 32) + (before + low < low ? 1u : 0u);
        if (high != 0) atomicAdd(&s.high[b], high);
    }

    DEVICE void clear_bins() {
        for (i32 b = threadIdx.x; b < kBins; b += Threads) set_mass(b, 0), s.count[b] = 0;
        __syncthreads();
    }

    // Sums parts of the bins. The order of integer sums does not matter, so adjacent threads start at different bins
    // to avoid bank conflicts.
    DEVICE void sum_parts() {
        constexpr i32 width = kBins / kParts;
        __syncthreads();
        if (threadIdx.x < kParts) {
            u64 m = 0, c = 0;
            for (i32 i = 0; i < width; i++) {
                i32 b = threadIdx.x * width + ((i + threadIdx.x) & (width - 1));
                m += mass(b);
                c += s.count[b];
            }
            s.part_mass[threadIdx.x] = m;
            s.part_count[threadIdx.x] = c;
        }
        __syncthreads();
    }
    DEVICE u64 total(const u64* parts) {
        u64 sum = 0;
        for (i32 p = 0; p < kParts; p++) sum += parts[p];
        return sum;
    }

    // Adds all tokens to the buckets.
    DEVICE void fill() {
        clear_bins();
        each(threadIdx.x, columns, Threads, [&](i32, f32 v) {
            f64 d;
            if (!reaches(v, d)) return;
            i32 b = sample_bucket(d);
            put(b, sample_weight(s.scales[b], b, d));
        });
        sum_parts();
        filled = true;
    }

    // Finds the bin at which the running sum of counts, or of masses (sums of weights), reaches need. There must be
    // such a bin.
    DEVICE void find(u64 need, bool counts) {
        if (threadIdx.x == 0) {
            constexpr i32 width = kBins / kParts;
            const u64* parts = counts ? s.part_count : s.part_mass;
            u64 sum = 0;
            i32 p = 0;
            for (; p < kParts - 1 && sum + parts[p] < need; p++) {
                sum += parts[p];
                s.above += s.part_mass[p];
            }
            i32 b = p * width;
            for (; b < kBins - 1; b++) {
                u64 size = counts ? s.count[b] : mass(b);
                if (sum + size >= need) break;
                sum += size;
                s.above += mass(b);
            }
            s.bin = b;
            s.before = sum;
        }
        __syncthreads();
    }

    // Finds the shortest list of best tokens whose count, or mass (sum of weights), reaches need. Sets s.edge to the
    // last key of the list and s.above to the mass of the list.
    DEVICE void cut(u64 need, bool counts) {
        if (!filled) fill();
        if (threadIdx.x == 0) s.above = 0;
        __syncthreads();
        find(need, counts);
        i32 bucket = s.bin, shift = 64;
        u64 prefix = 0; // bits above shift that are common to the remaining keys
        need -= s.before;
        u32 left = s.count[s.bin];
        while (left > kListed) {
            i32 next = shift - kDigit;
            filled = false;
            __syncthreads();
            clear_bins();
            members(bucket, prefix, shift, [&](u64 key, u64 w) {
                // Bins in the order of keys, best first.
                i32 bin = kBins - 1 - static_cast<i32>(key >> next & (kBins - 1));
                put(bin, w);
            });
            sum_parts();
            find(need, counts);
            need -= s.before;
            prefix = (shift == 64 ? 0 : prefix << kDigit) | static_cast<u64>(kBins - 1 - s.bin);
            left = s.count[s.bin];
            shift = next;
        }
        __syncthreads();
        if (threadIdx.x == 0) s.listed = 0;
        __syncthreads();
        members(bucket, prefix, shift, [&](u64 key, u64 w) {
            u32 at = atomicAdd(&s.listed, 1u);
            s.keys[at] = key;
            s.weights[at] = w;
        });
        __syncthreads();
        u64 above = s.above;
        __syncthreads();
        for (u32 i = threadIdx.x; i < left; i += Threads) {
            u64 key = s.keys[i], mass = 0, number = 0;
            for (u32 j = 0; j < left; j++)
                if (s.keys[j] >= key) mass += s.weights[j], number++;
            u64 measure = counts ? number : mass, own = counts ? 1 : s.weights[i];
            if (measure >= need && measure - own < need) { // true for exactly one key
                s.edge = key;
                s.above = above + mass;
            }
        }
        __syncthreads();
    }

    // Samples a column among the tokens up to edge whose weight is at least least. `random`, as a fraction of 2^64,
    // selects the point in the sum of their weights.
    DEVICE i32 draw(u64 edge, u64 least, u64 random) {
        clear_bins();
        i32 segments = (columns + kSegment - 1) / kSegment, lane = lane_id();
        for (i32 g = threadIdx.x / 32; g < segments; g += Threads / 32) {
            u64 sum = 0;
            each(g * kSegment + lane, min((g + 1) * kSegment, columns), 32,
                 [&](i32 c, f32 v) { sum += kept(c, v, edge, least); });
#pragma unroll
            for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(ptx::kFullMask, sum, d);
            if (lane == 0) set_mass(g, sum);
        }
        sum_parts();
        u64 goal = __umul64hi(random, total(s.part_mass));
        find(goal + 1, false);
        i32 first = s.bin * kSegment;
        u64 before = s.before;
        for (i32 i = threadIdx.x; i < kSegment; i += Threads)
            s.weights[i] = first + i < columns ? kept(first + i, logits[first + i], edge, least) : 0;
        __syncthreads();
        i32 i = 0;
        while (i < kSegment - 1 && before + s.weights[i] <= goal) before += s.weights[i++];
        return first + i;
    }
};

template <int Threads> DEVICE void sample_row(const SampleArgs& a) {
    __shared__ SampleShared s;
    i64 row = blockIdx.x;
    const Draw* words = reinterpret_cast<const Draw*>(a.draws + row * kDrawWords);
    Draw d = *words;
    const f32* logits = a.logits + row * a.stride;
    i32 best = a.best[row * a.id_stride];
    f32 top = best >= 0 && best < a.columns ? logits[best] : __int_as_float(0x7FC00000);
    if (d.inverse == 0 || !(fabsf(top) < __int_as_float(0x7F800000))) {
        if (threadIdx.x == 0) a.ids[row * a.id_stride] = best;
        return;
    }
    Sampling<Threads> r{s, logits, a.columns, top, d.inverse, false};
    r.make_scales();
    u64 edge = 0;
    if (d.top_k > 0 || d.top_p < 1) {
        r.fill();
        u64 mass = r.total(s.part_mass), tokens = r.total(s.part_count), k = static_cast<u64>(d.top_k);
#pragma unroll 1
        for (int i = 0; i < 2; i++) { // a loop, so that the code exists once for top_k and top_p
            bool counts = i == 0;
            if (counts ? k == 0 || k >= tokens : d.top_p >= 1) continue;
            r.cut(counts ? k : sample_share(d.top_p, mass), counts);
            edge = s.edge;
            mass = s.above;
            __syncthreads();
        }
    }
    i32 chosen = r.draw(edge, d.least, d.random);
    if (threadIdx.x == 0) a.ids[row * a.id_stride] = chosen;
}
