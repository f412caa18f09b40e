// Products of many tokens with packed weights, portable kernels.
//
// Item:  128 weight rows by up to 128 tokens.
// Block: Eight warps. In turn, all warps widen 64 columns of the weights, 16 rows each, and store them in shared memory
//        in the order of the left operand of the matrix unit; then each warp multiplies 64 weight rows by every fourth
//        set of eight tokens. Copies of the next token columns, and of the next unit of weights, run meanwhile.
// Parts: The sums of a part are added to those of the parts before it, which each thread keeps in global memory.
#pragma once

#include "sm80/packed/walk.cuh"

namespace sparrow_packed {

template <class Format>
struct ManyShape {
    using F = Format;
    static constexpr int Tokens = 128, Stripes = 2, Threads = 256, Pitch = 64 * 2 + 16;
    static constexpr bool Whole = true;
    static constexpr int WeightBytes = Stripes * F::Bytes, TokenBytes = Tokens * Pitch;
    static constexpr int Sums = 64;  // float32 sums of a thread
};

template <class S>
struct ManyStorage {
    u8 weights[S::WeightBytes];
    u8 tokens[2][S::TokenBytes];
    uint4 widened[8][4][32];  // [piece of 16 rows][step][lane]
    alignas(128) u8 table[Table<typename S::F>::TableBytes + 16];
    const u8* rows[S::Tokens];
    // In shared memory, because the sums need the registers:
    const u8* from;  // first unit of the weights
    Item item;
    Items<S> items;  // after the current item
};

// Widens batch b of a unit. Formats keep values in registers that only constants can select.
template <class F, int b = 0>
__device__ __forceinline__ void widen_batch(F& format, u32 (&a)[4][4], i32 batch) {
    if constexpr (b + 1 < F::K / 64) {
        if (batch > b) {
            widen_batch<F, b + 1>(format, a, batch);
            return;
        }
    }
    format.batch(a, b);
}

// Returns the number of this thread. The compiler does not keep it, or what is computed from it, in registers over a
// loop: the sums need them.
__device__ __forceinline__ u32 thread_again() {
    u32 t;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
    return t;
}

// Multiplies the widened weights of a batch by the tokens of a stage. half is this warp's half of the weight rows, and
// tokens the address of its first eight tokens.
template <class S>
__device__ __forceinline__ void multiply_batch(float (&sum)[4][4][4], u32 widened, u32 tokens, i32 sets) {
    using F = typename S::F;
#pragma unroll
    for (u32 h = 0; h < 2; ++h) {
        u32 x[4][4];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            if (n < sets) {
                token_operands<F>(x[n], tokens + n * (32 * S::Pitch) + h * kNextSteps<F>);
            }
        }
#pragma unroll
        for (int s = 0; s < 2; ++s) {
#pragma unroll
            for (int two = 0; two < 4; two += 2) {  // all four pieces would need more registers than there are
                u32 a[2][4];
#pragma unroll
                for (int p = 0; p < 2; ++p) {
                    const uint4 v = portable::load_shared(widened + ((two + p) * 4 + 2 * h + s) * 512);
                    a[p][0] = v.x, a[p][1] = v.y, a[p][2] = v.z, a[p][3] = v.w;
                }
#pragma unroll
                for (int n = 0; n < 4; ++n) {
                    if (n < sets) {
                        ptx::multiply_16x8(sum[two][n], a[0], x[n][2 * s], x[n][2 * s + 1]);
                        ptx::multiply_16x8(sum[two + 1][n], a[1], x[n][2 * s], x[n][2 * s + 1]);
                    }
                }
            }
        }
    }
}

// Adds the sums of a part to those of the parts before, which this thread keeps in global memory, and starts the next
// part from zero. After the last part the total is in sum.
template <class S>
__device__ __forceinline__ void end_part(const PackedArgs& args, float (&sum)[4][4][4], i32 part) {
    float4* slab = reinterpret_cast<float4*>(args.sums) +
                   static_cast<i64>(blockIdx.x) * (S::Sums / 4 * S::Threads) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        float(&f)[4] = sum[i / 4][i % 4];
        if (part > 0) {
            const float4 v = slab[i * S::Threads];
            f[0] = __fadd_rn(v.x, f[0]), f[1] = __fadd_rn(v.y, f[1]);
            f[2] = __fadd_rn(v.z, f[2]), f[3] = __fadd_rn(v.w, f[3]);
        }
        if (part + 1 < args.parts) {
            slab[i * S::Threads] = make_float4(f[0], f[1], f[2], f[3]);
            f[0] = f[1] = f[2] = f[3] = 0;
        }
    }
}

// A set of eight tokens, for write (smxx/packed/output.cuh).
struct Eight {
    static constexpr int Tokens = 8;
};

// Writes the results of four pieces of 16 weight rows by this warp's tokens. Each thread passes its sums to a loop
// through shared memory, own[piece * Threads], which keeps the code short.
template <class S>
__device__ __forceinline__ void write_many(const PackedArgs& args, const float (&sum)[4][4][4], float4* own,
                                           const Item& item, u32 half, u32 of, u32 lane) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
        const i32 before = 8 * (static_cast<i32>(of) + 4 * n);
        if (before >= item.count) {
            break;
        }
#pragma unroll
        for (int p = 0; p < 4; ++p) {
            own[p * S::Threads] = make_float4(sum[p][n][0], sum[p][n][1], sum[p][n][2], sum[p][n][3]);
        }
        Item eight = item;
        eight.first += before, eight.count = min(8, item.count - before);
#pragma unroll 1
        for (u32 p = 0; p < 4; ++p) {
            const float4 v = own[p * S::Threads];
            const float sums[4] = {v.x, v.y, v.z, v.w};
            write<Eight>(args, sums, eight, item.tile * S::Stripes + static_cast<i32>(half), p, lane);
        }
    }
}

template <class S>
__device__ __forceinline__ void multiply_many(const PackedArgs& args) {
    using F = typename S::F;
    constexpr int kBatches = F::K / 64;
    extern __shared__ __align__(128) u8 dynamic_shared[];
    ManyStorage<S>& shared = *reinterpret_cast<ManyStorage<S>*>(dynamic_shared);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, half = warp / 4, of = warp % 4;
    Table<F>::fill(shared.table, threadIdx.x, S::Threads);
    const u32 table = Table<F>::of_lane(portable::shared_address(shared.table), lane);
    const u32 units_at = portable::shared_address(shared.weights), tokens_at = portable::shared_address(shared.tokens);
    const u32 widened = portable::shared_address(shared.widened);
    const u32 left = widened + half * (16 * 512) + lane * 16;
    const u32 right = of * (8 * S::Pitch) + token_offset<F>(lane, S::Pitch);
    Items<S> items = Items<S>::first(args);
    Item item;
    while (items.next(args, item)) {
        __syncthreads();  // all threads have read the data of the previous item in shared memory
        if (threadIdx.x == 0) {
            shared.from = weights_of<S>(args, item), shared.item = item, shared.items = items;
        }
        if (static_cast<i32>(threadIdx.x) < item.count) {
            shared.rows[threadIdx.x] = token_at(args, item.first + threadIdx.x);
        }
        __syncthreads();
        const auto copy_tokens = [&](i32 batch) {
            const u32 t = thread_again(), piece = t % 8, to = tokens_at + (batch & 1) * S::TokenBytes + piece * 16;
            const i32 column = batch * 128 + piece * 16;
            const bool valid = column < args.x_bytes;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const i32 token = t / 8 + 32 * i;
                if (token < shared.item.count) {
                    portable::copy_16(to + token * S::Pitch, shared.rows[token] + column, valid);
                }
            }
        };
        copy_unit<S::WeightBytes, S::Threads>(units_at, shared.from, threadIdx.x);
        copy_tokens(0);
        portable::copies_commit();
        const i32 sets = min(4, (item.count - 8 * static_cast<i32>(of) + 31) / 32);  // this warp's sets of eight tokens
        float sum[4][4][4];
#pragma unroll
        for (int i = 0; i < S::Sums; ++i) {
            sum[i / 16][i / 4 % 4][i % 4] = 0;
        }
#pragma unroll 1
        for (i32 unit = 0; unit < args.units; ++unit) {
            F format;
#pragma unroll 1
            for (i32 b = 0; b < kBatches; ++b) {
                portable::copies_wait<0>();
                __syncthreads();  // copies have arrived, and all warps have multiplied the batch before
                if (b == 0) {
                    const u32 t = thread_again();
                    format = unit_of<F>(units_at + t / 128 * F::Bytes, table, t / 32 % 4, t % 32);
                }
                u32 a[4][4];
                widen_batch(format, a, b);
                const u32 t = thread_again(), to = widened + (t / 32 * 128 + t % 32) * 16;
#pragma unroll
                for (int s = 0; s < 4; ++s) {
                    portable::store_shared(to + s * 512,
                                           make_uint4(a[s][0], a[s][1], a[s][2], a[s][3]));
                }
                __syncthreads();
                const i32 batch = unit * kBatches + b;
                if (b + 1 < kBatches || unit + 1 < args.units) {
                    copy_tokens(batch + 1);
                }
                if (b + 1 == kBatches && unit + 1 < args.units) {
                    copy_unit<S::WeightBytes, S::Threads>(
                        units_at, shared.from + static_cast<i64>(unit + 1) * (kStripes * F::Bytes), thread_again());
                }
                portable::copies_commit();
                multiply_batch<S>(sum, left, tokens_at + (batch & 1) * S::TokenBytes + right, sets);
            }
            if (args.parts > 1) {
                const i32 each = (args.units + args.parts - 1) / args.parts;  // units of a part
                if (unit + 1 == args.units || (unit + 1) % each == 0) {
                    end_part<S>(args, sum, unit / each);
                }
            }
        }
        __syncthreads();  // all warps have multiplied the last batch
        items = shared.items, item = shared.item;
        write_many<S>(args, sum, reinterpret_cast<float4*>(shared.widened) + threadIdx.x, item, half, of, lane);
    }
}

}  // namespace sparrow_packed

#define PORTABLE_PACKED_MANY(Name, ...)                                                                       \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                      \
        portable_packed_##Name##_many(const __grid_constant__ PackedArgs args) {                              \
        sparrow_packed::multiply_many<sparrow_packed::ManyShape<__VA_ARGS__>>(args);                          \
    }                                                                                                         \
    static_assert(sizeof(sparrow_packed::ManyStorage<sparrow_packed::ManyShape<__VA_ARGS__>>) <=              \
                      sparrow_packed::kBlockShared,                                                           \
                  "more shared memory than a block of a consumer card can have");                             \
    extern "C" __device__ const u32 portable_packed_##Name##_many_shared =                                    \
        sizeof(sparrow_packed::ManyStorage<sparrow_packed::ManyShape<__VA_ARGS__>>);
#define PORTABLE_PACKED(Name, ...)          \
    PORTABLE_PACKED_FEW(Name, __VA_ARGS__)  \
    PORTABLE_PACKED_MANY(Name, __VA_ARGS__)
