// Products of up to 16 tokens with packed weights, portable kernels. Their time is bound by reading weights.
//
// Block: Each warp has 16 weight rows. All threads copy units of weights, with the token rows for them, to a ring of
//        stages in shared memory, also those of the next item. Warps widen the weights in registers to the left operand
//        of the matrix unit; tokens are the right operand, eight at a time.
// Parts: Several blocks can sum parts of k; the last warp to arrive adds them in order.
#pragma once

#include "sm80/packed/walk.cuh"

namespace sparrow_packed {

template <class Format>
struct FewShape {
    using F = Format;
    static constexpr int Tokens = 16, Pitch = F::K * 2 + 16;
    static constexpr bool Whole = false;
    static constexpr int Room = kBlockShared - 128 - Table<F>::TableBytes;
    static constexpr int stages(int stripes) { return Room / (stripes * F::Bytes + Tokens * Pitch); }
    static constexpr int Stripes = stages(2) >= 2 ? 2 : 1, Groups = Stripes, Threads = 128 * Stripes;
    static constexpr int WeightBytes = Stripes * F::Bytes, StageBytes = WeightBytes + Tokens * Pitch;
    static constexpr int Stages = stages(Stripes) < 6 ? stages(Stripes) : 6;
    static_assert(Stages >= 2, "a ring of stages");
};

template <class S>
struct FewStorage {
    u8 stages[S::Stages][S::StageBytes];  // weights of Stripes stripes, then token rows [tokens][Pitch]
    alignas(128) u8 table[Table<typename S::F>::TableBytes + 16];
};

// The sequence of units of a block, over all of its items.
template <class S>
struct Units {
    Items<S> items;
    Item item;
    Span span;
    i32 unit;
    bool more;

    __device__ __forceinline__ explicit Units(const PackedArgs& args) : items(Items<S>::first(args)) {
        begin(args);
    }
    __device__ __forceinline__ void begin(const PackedArgs& args) {
        more = items.next(args, item);
        if (more) {
            span = span_of(args, item.part), unit = span.begin;
        }
    }
    __device__ __forceinline__ bool last() const { return unit + 1 == span.end; }
};

// Copies the units of a block to the ring, one per call. Addresses of the next unit are kept, so that a copy takes few
// instructions.
template <class S>
struct Feeder {
    static constexpr int kPieces = S::F::K / 8;  // 16-byte pieces of a token row and unit
    static constexpr int kOwn = S::Tokens * kPieces / S::Threads;
    static_assert(S::Tokens * kPieces % S::Threads == 0, "each thread copies the same number of pieces");
    static_assert(S::Threads % kPieces == 0, "the pieces of a thread have the same columns");
    Units<S> at;
    // Of the next unit: the weights, this thread's pieces of its token rows, the bytes from there to the end of the
    // rows, and the stage.
    const u8* weights;
    const u8* rows[kOwn];
    bool there[kOwn];  // whether there are such token rows
    i32 left;
    u32 stage = 0;

    __device__ __forceinline__ explicit Feeder(const PackedArgs& args) : at(args) { find(args); }
    __device__ __forceinline__ void find(const PackedArgs& args) {
        if (!at.more) {
            return;
        }
        weights = weights_of<S>(args, at.item) + static_cast<i64>(at.unit) * (kStripes * S::F::Bytes);
        const i32 column = at.unit * (S::F::K * 2) + threadIdx.x % kPieces * 16;
        left = args.x_bytes - column;
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            const i32 token = (i * S::Threads + threadIdx.x) / kPieces;
            there[i] = token < at.item.count;
            rows[i] = token_at(args, at.item.first + (there[i] ? token : 0)) + column;
        }
    }
    __device__ __forceinline__ void copy(const PackedArgs& args, u32 stages) {
        if (at.more) {
            const u32 to = stages + stage;
            copy_unit<S::WeightBytes, S::Threads>(to, weights, threadIdx.x);
            const u32 to_rows = to + S::WeightBytes + threadIdx.x / kPieces * S::Pitch + threadIdx.x % kPieces * 16;
#pragma unroll
            for (int i = 0; i < kOwn; ++i) {
                if (there[i]) {
                    portable::copy_16(to_rows + i * (S::Threads / kPieces * S::Pitch), rows[i], left > 0);
                }
                rows[i] += S::F::K * 2;
            }
            stage = stage == (S::Stages - 1) * S::StageBytes ? 0 : stage + S::StageBytes;
            if (at.last()) {
                at.begin(args);
                find(args);
            } else {
                ++at.unit;
                weights += kStripes * S::F::Bytes;
                left -= S::F::K * 2;
            }
        }
        portable::copies_commit();
    }
};

// Adds the products of a unit for 16 weight rows by Tiles times eight tokens.
template <class S, int Tiles>
__device__ __forceinline__ void add_unit(float (&sum)[S::Tokens / 2], u32 stage, u32 table, u32 warp, u32 lane) {
    using F = typename S::F;
    F format = unit_of<F>(stage + warp / 4 * F::Bytes, table, warp % 4, lane);
    const u32 tokens = stage + S::WeightBytes + token_offset<F>(lane, S::Pitch);
#pragma unroll
    for (int b = 0; b < F::K / 64; ++b) {
        u32 a[4][4];
        format.batch(a, b);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
            for (int e = 0; e < Tiles; ++e) {
                u32 x[4];
                token_operands<F>(x, tokens + e * (8 * S::Pitch) + b * 128 + h * kNextSteps<F>);
                ptx::multiply_16x8(&sum[4 * e], a[2 * h], x[0], x[1]);
                ptx::multiply_16x8(&sum[4 * e], a[2 * h + 1], x[2], x[3]);
            }
        }
    }
}

// Adds the products of consecutive units. stage is the offset of the first of them in the ring.
template <class S, int Tiles>
__device__ __forceinline__ void add_units(const PackedArgs& args, Feeder<S>& feeder, float (&sum)[S::Tokens / 2],
                                          i32 units, u32 stages, u32& stage, u32 table, u32 warp, u32 lane) {
#pragma unroll 1
    for (; units > 0; --units) {
        portable::copies_wait<S::Stages - 2>();
        __syncthreads();  // the unit has arrived, and all warps have read the unit before
        feeder.copy(args, stages);
        add_unit<S, Tiles>(sum, stages + stage, table, warp, lane);
        stage = stage == (S::Stages - 1) * S::StageBytes ? 0 : stage + S::StageBytes;
    }
}

template <class S>
__device__ __forceinline__ void multiply_few(const PackedArgs& args) {
    extern __shared__ __align__(128) u8 dynamic_shared[];
    FewStorage<S>& shared = *reinterpret_cast<FewStorage<S>*>(dynamic_shared);
    const u32 stages = portable::shared_address(shared.stages), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Feeder<S> feeder(args);
    for (int i = 0; i < S::Stages - 1; ++i) {
        feeder.copy(args, stages);
    }
    Table<typename S::F>::fill(shared.table, threadIdx.x, S::Threads);
    const u32 table = Table<typename S::F>::of_lane(portable::shared_address(shared.table), lane);
    float sum[S::Tokens / 2];
    u32 stage = 0;
    // The votes and the maximum are equal in all lanes. They tell the compiler that the lanes do not diverge, which
    // saves instructions before each matrix instruction.
    for (Units<S> at(args); __any_sync(ptx::kFullMask, at.more); at.begin(args)) {
#pragma unroll
        for (int i = 0; i < S::Tokens / 2; ++i) {
            sum[i] = 0;
        }
        const i32 units = ptx::warp_max_signed(at.span.end - at.span.begin);
        if (__any_sync(ptx::kFullMask, at.item.count > 8)) {
            add_units<S, 2>(args, feeder, sum, units, stages, stage, table, warp, lane);
        } else {
            add_units<S, 1>(args, feeder, sum, units, stages, stage, table, warp, lane);
        }
        if (args.parts == 1 || add_parts_of_warp<S>(args, sum, at.item, warp, lane)) {
            write<S>(args, sum, at.item, at.item.tile * S::Stripes + static_cast<i32>(warp / 4), warp % 4, lane);
        }
    }
}

}  // namespace sparrow_packed

#define PORTABLE_PACKED_FEW(Name, ...)                                                                        \
    extern "C" __global__ void __launch_bounds__(sparrow_packed::FewShape<__VA_ARGS__>::Threads, 2)           \
        portable_packed_##Name##_few(const __grid_constant__ PackedArgs args) {                               \
        sparrow_packed::multiply_few<sparrow_packed::FewShape<__VA_ARGS__>>(args);                            \
    }                                                                                                         \
    extern "C" __device__ const u32 portable_packed_##Name##_few_shared =                                     \
        sizeof(sparrow_packed::FewStorage<sparrow_packed::FewShape<__VA_ARGS__>>);
