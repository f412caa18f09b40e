// Matrix products with packed weights: out = x * weight transposed, for one matrix or for all experts that have rows.
//
// In:    packed weights (pack.cuh); rows of bf16, gathered by pair for experts.
// Out:   bf16 or f32 [rows, columns]; gate and up: their activation; down: one row per pair (args.h).
// Block: one per SM, persistent. One warpgroup copies: the copy engine loads a unit of weights in one piece, and the
//        threads copy the rows of the tokens, 16 bytes at a time, to their swizzled positions. For turned formats the
//        warpgroup then reorders the columns of the tokens. The other warpgroups widen 64 weight rows each in registers
//        to the A operand of the tensor cores, and multiply. The conversion of four steps overlaps the products of the
//        previous four steps.
// Bytes: weights are read once from memory for each group of tokens. With few tokens the kernel is limited by the
//        bandwidth of the packed weights.
#pragma once

#include "ptx/wgmma_packed.cuh"
#include "sm90/packed/few.cuh"

namespace sparrow_packed {

// Returns the row of an item's token; tokens beyond the count use the first row.
__device__ __forceinline__ u32 row_of(const PackedArgs& args, const Item& item, i32 token) {
    const i32 place = item.first + token;
    return token >= item.count ? 0 : args.order == nullptr || args.from_pairs ? place : args.order[place] / args.top;
}

// The part of an item's tokens that a copy thread copies: 16 bytes of the columns of some token rows.
template <class S>
struct Tokens {
    static constexpr int kChunks = S::Columns / 8, kApart = 128 / kChunks, kSlots = S::Tokens / kApart;
    u32 row[kSlots];
    i32 count;
    u32 t;

    __device__ __forceinline__ Tokens(const PackedArgs& args, const Item& item, u32 thread)
        : count(item.count), t(thread) {
#pragma unroll
        for (int j = 0; j < kSlots; ++j) {
            row[j] = row_of(args, item, t / kChunks + kApart * j);
        }
    }
    __device__ __forceinline__ void copy(const PackedArgs& args, u32 inputs, i32 column) const {
        const u32 chunk = t % kChunks, byte = column * 2 + chunk * 16;
        const bool inside = static_cast<i32>(byte) < args.x_bytes;
        static_assert(kApart % 8 == 0, "a thread's tokens have one swizzle");
        const u32 first = t / kChunks;
        const u32 to = inputs + chunk / 8 * (S::Tokens * 128) + first * 128 + ((chunk % 8 ^ first % 8) << 4);
#pragma unroll
        for (int j = 0; j < kSlots; ++j) {
            const u32 token = first + kApart * j;
            ptx::copy_16(to + j * (kApart * 128),
                         args.x + static_cast<i64>(row[j]) * args.x_pitch + (inside ? byte : 0),
                         inside && static_cast<i32>(token) < count);
        }
    }
};

// Stores four pieces of 16 bytes; piece i has pair i of each of the four input pieces.
__device__ __forceinline__ void put_turned(u32 at, const uint4& a, const uint4& b, const uint4& c, const uint4& d) {
    const u32 words[4][4] = {
        {a.x, b.x, c.x, d.x}, {a.y, b.y, c.y, d.y}, {a.z, b.z, c.z, d.z}, {a.w, b.w, c.w, d.w}};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at ^ i << 4), "r"(words[i][0]),
                     "r"(words[i][1]), "r"(words[i][2]), "r"(words[i][3])
                     : "memory");
    }
}

// For turned formats (decode.cuh): reorders the columns of a stage after they have arrived. 64 columns are four sets of
// eight pairs; 16-byte piece i gets pair i of each set. A thread reorders the 64 columns of a token in place. Eight
// threads that read or write together have eight different tokens, whose pieces are in different banks.
template <class S>
__device__ __forceinline__ void turn(u32 inputs, u32 t) {
    static_assert(S::Columns == 128 && S::Tokens % 64 == 0, "twice 64 columns of tokens");
    const u32 token = t / 16 * 8 + t % 8;
    const u32 at = inputs + t / 8 % 2 * (S::Tokens * 128) + token * 128 + ((token & 7) << 4);
#pragma unroll 1
    for (u32 row = at; row < at + S::Tokens * 128; row += 64 * 128) {
        uint4 v[8];  // v[0], v[2], .. give four pieces, which overwrite two others
        v[0] = load_16(row), v[2] = load_16(row ^ 2 << 4), v[4] = load_16(row ^ 4 << 4), v[6] = load_16(row ^ 6 << 4);
        v[1] = load_16(row ^ 1 << 4), v[3] = load_16(row ^ 3 << 4);
        put_turned(row, v[0], v[2], v[4], v[6]);
        v[5] = load_16(row ^ 5 << 4), v[7] = load_16(row ^ 7 << 4);
        put_turned(row ^ 4 << 4, v[1], v[3], v[5], v[7]);
    }
}

// Marks a stage as full after its copies have arrived; turned formats reorder its columns first.
template <class S>
__device__ __forceinline__ void pass_on(Storage<S>& shared, i32 stage, u32 t) {
    if constexpr (S::F::Turned) {
        asm volatile("bar.sync 2, 128;" ::: "memory");  // each thread has copied parts of all rows
        turn<S>(ptx::shared_address(shared.inputs[stage]), t);
    }
    ptx::fence_async_proxy();
    ptx::barrier_arrive(ptx::shared_address(&shared.inputs_full[stage]));
}

template <class S>
__device__ __forceinline__ void load_unit(Storage<S>& shared, u32 stage, const u8* weights, i32 unit, u64 policy) {
    const u32 full = ptx::shared_address(&shared.weights_full[stage]);
    ptx::barrier_expect(full, S::WeightBytes);
    ptx::load_bytes(ptx::shared_address(shared.weights[stage]),
                    weights + static_cast<i64>(unit) * (kStripes * S::F::Bytes), S::WeightBytes, full, policy);
}

template <class S>
__device__ __forceinline__ void feed(const PackedArgs& args, Storage<S>& shared) {
    const u32 t = threadIdx.x % 128;
    Walk<S> walk;
    Cursor inputs, units;
    Item item;
    i32 last = -1, older = -1;  // stages whose token copies are in flight; -1: none
    // Weights were written before the previous kernel started and, unless late(args), so was the list of experts. The
    // copies of the first units are therefore issued before waiting for the previous kernel.
    i32 primed = 0;
    if (!late(args)) {
        Walk<S> first;
        if (t == 0 && first.next(shared, args, item)) {
            const Span span = S::Whole ? Span{0, args.units} : span_of(args, item.part);
            const u8* weights = weights_of<S>(args, item);
            for (; primed < min(S::Weights, span.end - span.begin); ++primed) {
                load_unit<S>(shared, primed, weights, span.begin + primed, ptx::kEvictFirst);
            }
        }
        ptx::wait_for_previous_kernel();
    }
    ptx::release_next_kernel();
    while (walk.next(shared, args, item)) {
        const Tokens<S> tokens(args, item, t);
        const Span span = S::Whole ? Span{0, args.units} : span_of(args, item.part);
        const u8* weights = weights_of<S>(args, item);
        const u64 policy = S::Groups == 4 ? ptx::kEvictFirst : ptx::kEvictNormal;
        for (i32 unit = span.begin; unit < span.end; ++unit) {
            ptx::barrier_wait(ptx::shared_address(&shared.weights_empty[units.stage]), units.parity ^ 1);
            if (t == 0 && primed-- <= 0) {
                load_unit<S>(shared, units.stage, weights, unit, policy);
            }
            units.advance(S::Weights);
#pragma unroll 1
            for (i32 half = 0; half < S::F::K / S::Columns; ++half) {
                ptx::barrier_wait(ptx::shared_address(&shared.inputs_empty[inputs.stage]), inputs.parity ^ 1);
                tokens.copy(args, ptx::shared_address(shared.inputs[inputs.stage]),
                            unit * S::F::K + half * S::Columns);
                ptx::copies_commit();
                if (older >= 0) {
                    ptx::copies_wait<2>();
                    pass_on<S>(shared, older, t);
                }
                older = last, last = static_cast<i32>(inputs.stage);
                inputs.advance(S::Inputs);
            }
        }
    }
    if (last >= 0) {
        ptx::copies_wait<0>();
        if (older >= 0) {
            pass_on<S>(shared, older, t);
        }
        pass_on<S>(shared, last, t);
    }
}

// The positions of the math warps in the ring of inputs and the ring of weight units.
struct Rings {
    Cursor inputs, units;
};

// Prepares sums for the products of a span.
template <class F, int N>
__device__ __forceinline__ void begin_sums(float (&sum)[N]) {
    if constexpr (scales_sums<F>()) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            sum[i] = 0;
        }
    }
    ptx::mma_pin(sum);
}

// Converts batch b of a unit. For formats with scales of sums, waits for the products in flight before a group begins.
template <class F, int N>
__device__ __forceinline__ void convert(F& format, u32 (&a)[4][4], int b, float (&sum)[N], float2& fractions) {
    if constexpr (scales_sums<F>()) {
        if (b % 2 == 0) {
            const float2 by = format.begin_group(b / 2, fractions);
            format.batch(a, b);
            ptx::mma_wait<0>();
            ptx::mma_pin(sum);
            scale_sums<N>(sum, by);
            return;
        }
    }
    format.batch(a, b);
}

// Waits for the products of a span.
template <class F, int N>
__device__ __forceinline__ void end_sums(float (&sum)[N], float2 fractions) {
    ptx::mma_wait<0>();
    ptx::mma_pin(sum);
    if constexpr (scales_sums<F>()) {
        scale_sums<N>(sum, fractions);
    }
}

// Sums the products of the units of a span, starting at zero.
template <class S>
__device__ __forceinline__ void add_span(Storage<S>& shared, float (&sum)[S::Tokens / 2], const Span& span,
                                         Rings& at, u32 table, u32 group, u32 warp, u32 lane) {
    // Batches (of 64 columns) per unit of weights and per stage of inputs.
    constexpr int kBatches = S::F::K / 64, kStage = S::Columns / 64;
    static_assert(kBatches % 2 == 0, "two sets of operands in turn");
    u32 a[2][4][4];
    i32 before = -1;  // stage of inputs that the products in flight still read; -1: none
    float2 fractions = make_float2(1, 1);
    begin_sums<typename S::F>(sum);
    for (i32 unit = span.begin; unit < span.end; ++unit) {
        ptx::barrier_wait(ptx::shared_address(&shared.weights_full[at.units.stage]), at.units.parity);
        typename S::F format = unit_of<typename S::F>(
            ptx::shared_address(shared.weights[at.units.stage]) + group * S::F::Bytes, table, warp, lane);
        u64 inputs = 0;
#pragma unroll
        for (int b = 0; b < kBatches; ++b) {
            convert(format, a[b % 2], b, sum, fractions);
            if (b == kBatches - 1) {  // the codes of the unit are in registers
                sparrow_tile::arrive_warp(ptx::shared_address(&shared.weights_empty[at.units.stage]));
                at.units.advance(S::Weights);
            }
            if (b % kStage == 0) {
                ptx::barrier_wait(ptx::shared_address(&shared.inputs_full[at.inputs.stage]), at.inputs.parity);
                inputs = ptx::operand_128b(ptx::shared_address(shared.inputs[at.inputs.stage]));
            }
            ptx::mma_fence();
#pragma unroll
            for (int s = 0; s < 4; ++s) {
                ptx::Held<S::Tokens>::run(sum, a[b % 2][s], inputs + b % kStage * (S::Tokens * 128 >> 4) + 2 * s,
                                          unit > span.begin || b > 0 || s > 0);
            }
            ptx::mma_commit();
            ptx::mma_wait<1>();  // the operands of the previous batch may be overwritten
            if (b % kStage == 0) {
                if (before >= 0) {
                    sparrow_tile::arrive_warp(ptx::shared_address(&shared.inputs_empty[before]));
                }
                before = static_cast<i32>(at.inputs.stage);
                at.inputs.advance(S::Inputs);
            }
        }
    }
    end_sums<typename S::F>(sum, fractions);
    if (before >= 0) {
        sparrow_tile::arrive_warp(ptx::shared_address(&shared.inputs_empty[before]));
    }
}

template <class S>
__device__ __forceinline__ void multiply_packed(const PackedArgs& args) {
    Storage<S>& shared = storage<S>();
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::Inputs; ++i) {
            ptx::barrier_init(ptx::shared_address(&shared.inputs_full[i]), 128);
            ptx::barrier_init(ptx::shared_address(&shared.inputs_empty[i]), 4 * S::Groups);
        }
        for (int i = 0; i < S::Weights; ++i) {
            ptx::barrier_init(ptx::shared_address(&shared.weights_full[i]), 1);
            ptx::barrier_init(ptx::shared_address(&shared.weights_empty[i]), 4 * S::Groups);
        }
        ptx::barrier_init_fence();
    }
    Table<typename S::F>::fill(shared.table, threadIdx.x, S::Threads);
    read_list<S>(args, shared);
    const u32 group = __shfl_sync(ptx::kFullMask, threadIdx.x / 128, 0);
    if (group == S::Groups) {
        ptx::registers_shrink<S::CopyRegisters>();
        feed<S>(args, shared);
        return;
    }
    ptx::registers_grow<S::MathRegisters>();
    const u32 warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    const u32 table = Table<typename S::F>::of_lane(ptx::shared_address(shared.table), lane);
    Walk<S> walk;
    Rings ring;
    Item item;
    while (walk.next(shared, args, item)) {
        float sum[S::Tokens / 2];
        if constexpr (S::Wide) {  // experts: k has one part, so registers hold one sum
            add_span<S>(shared, sum, Span{0, args.units}, ring, table, group, warp, lane);
        } else if constexpr (S::Whole) {
            add_span<S>(shared, sum, span_of(args, 0), ring, table, group, warp, lane);
#pragma unroll 1
            for (i32 part = 1; part < args.parts; ++part) {
                float next[S::Tokens / 2];
                add_span<S>(shared, next, span_of(args, part), ring, table, group, warp, lane);
#pragma unroll
                for (int i = 0; i < S::Tokens / 2; ++i) {
                    sum[i] = __fadd_rn(sum[i], next[i]);
                }
            }
        } else {
            add_span<S>(shared, sum, span_of(args, item.part), ring, table, group, warp, lane);
            if (args.parts > 1 && !add_parts<S>(args, shared, sum, item)) {
                continue;
            }
        }
        write<S>(args, sum, item, item.tile * S::Groups + static_cast<i32>(group), warp, lane);
    }
}

}  // namespace sparrow_packed

// Defines the kernels of a format: for up to 8, up to 16, up to 64 tokens, and for more. For 8-bit codes, 16 tokens use
// the warpgroup products, which take less time there.
#define PACKED_KERNEL(Name, ...)                                                                                 \
    extern "C" __global__ void __launch_bounds__(sparrow_packed::Shape<__VA_ARGS__>::Threads, 1)                 \
        sparrow_packed_##Name(const __grid_constant__ PackedArgs args) {                                         \
        sparrow_packed::multiply_packed<sparrow_packed::Shape<__VA_ARGS__>>(args);                               \
    }                                                                                                            \
    extern "C" __device__ const u32 sparrow_packed_##Name##_shared =                                             \
        sparrow_packed::shared_bytes<sparrow_packed::Shape<__VA_ARGS__>>();
#define PACKED_KERNELS_BUT_16(Name, ...)                    \
    PACKED_FEW(Name##_few8, Few<__VA_ARGS__, 8, 128>)       \
    PACKED_KERNEL(Name##_few64, __VA_ARGS__, 64, 4, false)  \
    PACKED_KERNEL(Name##_many, __VA_ARGS__, 128, 2, true)
// Defines a kernel for groups of 256 tokens, which converts half as many weights per product as the kernel for 128
// tokens.
#define PACKED_WIDE(Name, ...) PACKED_KERNEL(Name##_wide, __VA_ARGS__, 256, 2, true)
#define PACKED_KERNELS(Name, ...)                           \
    PACKED_KERNELS_BUT_16(Name, __VA_ARGS__)                \
    PACKED_FEW(Name##_few16, FewOf<__VA_ARGS__, 16, 512, 4>)
// Defines a kernel for few tokens of experts, with the given number of stripes per block.
#define PACKED_FEW_EXPERTS(Name, Stripes, ...) PACKED_FEW(Name##_few_experts, FewExperts<__VA_ARGS__, Stripes>)
// Also defines a kernel for few experts with few rows: its blocks have 64 weight rows, so that all SMs have work.
#define PACKED_KERNELS_FINE(Name, ...)                      \
    PACKED_KERNELS(Name, __VA_ARGS__)                       \
    PACKED_FEW(Name##_fine, FewOf<__VA_ARGS__, 16, 64, 1>)
#define PACKED_KERNELS_8_BITS(Name, ...)                    \
    PACKED_KERNELS_BUT_16(Name, __VA_ARGS__)                \
    PACKED_KERNEL(Name##_few16, __VA_ARGS__, 16, 4, false)
