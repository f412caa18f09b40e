// Dense attention, portable kernel (arguments: sm90/dense/args.h, with the plain maps of map.cuh). A unit of work is
// one head of up to 64 query rows with the same first key: half of a tile of sm90/dense/plan.cuh.
//
// Block: 128 threads process units in a loop. A warp has 16 query rows, with their scores, softmax and output in
//        registers. The queries, a tile of keys and a tile of values are in shared memory. The next tile of keys is
//        loaded while the softmax weights and their product with the values are computed.
// Bits:  Tiles of keys begin at the row's first key and are added in order. Keys that are masked for a row have weight
//        zero.
#pragma once

#include "sm80/map.cuh"
#include "sm80/mma.cuh"
#include "sm90/dense/plan.cuh"
#include "smxx/num.cuh"

namespace portable {

constexpr int kDenseThreads = 128, kDenseRows = 64;
constexpr i32 kRopeColumns = 64;
constexpr u32 kFaultKeys = 4;  // fault bit: a row has keys outside the tensor
constexpr float kDenseLowest = -1e30f;

__device__ __forceinline__ float exp2_dense(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

template <int NopeColumns, int ValueColumns, int TileKeys>
struct DenseShape {
    static constexpr int Nope = NopeColumns, Values = ValueColumns, Keys = TileKeys, D = NopeColumns + kRopeColumns;
    // Bytes of a row; an odd number of 16-byte units, so that reads have no bank conflicts.
    static constexpr u32 Pitch = D * 2 + 16, ValuePitch = Values * 2 + 16;
};

template <class S>
struct DenseStorage {
    u8 queries[kDenseRows * S::Pitch];
    u8 keys[S::Keys * S::Pitch];
    u8 values[S::Keys * S::ValuePitch];
    i32 most[kDenseThreads / 32];
};

template <class S>
__device__ __forceinline__ void attend_unit(const DenseAttendArgs& args, DenseStorage<S>& shared, i32 row, i32 rows,
                                            i32 head) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
    const u32 q = shared_address(shared.queries), k = shared_address(shared.keys), v = shared_address(shared.values);
    const i32 start = args.start[row * args.start_stride];

    // The number of keys of rows `group` and `group` + 8 of the warp, and the maximum over the rows of the unit.
    i32 seen[2], most = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const i32 r = 16 * warp + 8 * half + group;
        seen[half] = 0;
        if (r < rows) {
            const i32 n = max(args.lens[(row + r) * args.len_stride], 0);
            const bool inside = start >= 0 && n <= args.keys - start;
            if (!inside && args.faults != nullptr) {
                atomicOr(args.faults, kFaultKeys);
            }
            seen[half] = inside ? n : 0;
        }
        most = max(most, seen[half]);
    }
    most = ptx::warp_max_signed(most);
    __syncthreads();  // all threads have read the data of the previous unit in shared memory
    if (lane == 0) {
        shared.most[warp] = most;
    }
    __syncthreads();
#pragma unroll
    for (int w = 0; w < kDenseThreads / 32; ++w) {
        most = max(most, shared.most[w]);
    }
    const i32 tiles = (most + S::Keys - 1) / S::Keys;

    const PlainMap &query = plain(args.query_map), &kv = plain(args.key_map), &rope = plain(args.rope_map);
    const u8* queries = query.base + row * query.strides[0] + static_cast<i64>(head) * S::D * 2;
    const u8* heads = kv.base + static_cast<i64>(head) * (S::Nope + S::Values) * 2;
    const auto fetch_keys = [&](i32 tile) {
        if (tile < tiles) {
            for (u32 i = threadIdx.x; i < S::Keys * (S::D / 8); i += kDenseThreads) {
                const u32 r = i / (S::D / 8), c = i % (S::D / 8);
                const i32 at = tile * S::Keys + static_cast<i32>(r);
                const bool valid = at < most;
                const u8* from = c < S::Nope / 8 ? heads + (start + at) * kv.strides[0] + c * 16
                                                 : rope.base + (start + at) * rope.strides[0] + (c - S::Nope / 8) * 16;
                copy_16(k + r * S::Pitch + c * 16, valid ? from : kv.base, valid);
            }
        }
        copies_commit();
    };
    const auto fetch_values = [&](i32 tile) {
        if (tile < tiles) {
            for (u32 i = threadIdx.x; i < S::Keys * (S::Values / 8); i += kDenseThreads) {
                const u32 r = i / (S::Values / 8), c = i % (S::Values / 8);
                const i32 at = tile * S::Keys + static_cast<i32>(r);
                // Values of other keys are set to zero, because they may be NaN, and 0 * NaN is NaN.
                const bool valid = at < most;
                copy_16(v + r * S::ValuePitch + c * 16,
                        valid ? heads + (start + at) * kv.strides[0] + S::Nope * 2 + c * 16 : kv.base, valid);
            }
        }
        copies_commit();
    };
    for (u32 i = threadIdx.x; i < kDenseRows * (S::D / 8); i += kDenseThreads) {
        const u32 r = i / (S::D / 8), c = i % (S::D / 8);
        const bool valid = static_cast<i32>(r) < rows;
        copy_16(q + r * S::Pitch + c * 16, valid ? queries + r * query.strides[0] + c * 16 : query.base, valid);
    }
    fetch_keys(0);
    fetch_values(0);

    float o[S::Values / 8][4] = {};
    float base[2] = {kDenseLowest, kDenseLowest}, sum[2] = {0.0f, 0.0f};
    for (i32 tile = 0; tile < tiles; ++tile) {
        copies_wait<1>();
        __syncthreads();
        float s[S::Keys / 8][4] = {};
        const u32 left = q + (16 * warp + lane % 16) * S::Pitch + lane / 16 * 16;
        const u32 right = k + (lane % 8 + lane / 16 * 8) * S::Pitch + lane / 8 % 2 * 16;
#pragma unroll 4
        for (int step = 0; step < S::D / 16; ++step) {
            u32 a[4];
            load_matrices(a, left + step * 32);
#pragma unroll
            for (int n = 0; n < S::Keys / 8; n += 2) {
                u32 b[4];
                load_matrices(b, right + n * 8 * S::Pitch + step * 32);
                const u32 low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
                multiply_bf16(s[n], a, low);
                multiply_bf16(s[n + 1], a, high);
            }
        }
        __syncthreads();
        fetch_keys(tile + 1);

        float high[2] = {__int_as_float(0xFF800000), __int_as_float(0xFF800000)};
#pragma unroll
        for (int i = 0; i < S::Keys / 2; ++i) {
            const i32 at = tile * S::Keys + i / 4 * 8 + 2 * static_cast<i32>(quad) + i % 2;
            float& x = s[i / 4][i % 4];
            x = at < seen[i % 4 / 2] ? x * args.score_scale : __int_as_float(0xFF800000);
            high[i % 4 / 2] = fmaxf(high[i % 4 / 2], x);
        }
        float factor[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            high[half] = fmaxf(high[half], __shfl_xor_sync(ptx::kFullMask, high[half], 1));
            high[half] = fmaxf(high[half], __shfl_xor_sync(ptx::kFullMask, high[half], 2));
            const float next = fmaxf(base[half], high[half]);
            factor[half] = exp2_dense(base[half] - next);
            base[half] = next;
            sum[half] *= factor[half];
        }
        float added[2] = {0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < S::Keys / 2; ++i) {
            float& x = s[i / 4][i % 4];
            x = exp2_dense(x - base[i % 4 / 2]);
            added[i % 4 / 2] += x;
        }
        sum[0] += added[0];
        sum[1] += added[1];
        if (__any_sync(ptx::kFullMask, factor[0] != 1.0f || factor[1] != 1.0f)) {
#pragma unroll
            for (int i = 0; i < S::Values / 2; ++i) {
                o[i / 4][i % 4] *= factor[i % 4 / 2];
            }
        }
        copies_wait<1>();
        __syncthreads();
#pragma unroll
        for (int step = 0; step < S::Keys / 16; ++step) {
            const float(&x)[4] = s[2 * step], (&y)[4] = s[2 * step + 1];
            const u32 a[4] = {pack_bf16_fast(x[0], x[1]), pack_bf16_fast(x[2], x[3]), pack_bf16_fast(y[0], y[1]),
                              pack_bf16_fast(y[2], y[3])};
#pragma unroll
            for (int n = 0; n < S::Values / 8; n += 2) {
                u32 b[4];
                load_turned(b, v + (16 * step + lane % 16) * S::ValuePitch + n * 16 + lane / 16 * 16);
                const u32 low[2] = {b[0], b[1]}, upper[2] = {b[2], b[3]};
                multiply_bf16(o[n], a, low);
                multiply_bf16(o[n + 1], a, upper);
            }
        }
        __syncthreads();
        fetch_values(tile + 1);
    }
    copies_wait<0>();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        sum[half] += __shfl_xor_sync(ptx::kFullMask, sum[half], 1);
        sum[half] += __shfl_xor_sync(ptx::kFullMask, sum[half], 2);
        const float inverse = sum[half] > 0.0f ? 1.0f / sum[half] : 0.0f;
        const i32 r = 16 * warp + 8 * half + group;
        if (r >= rows) {
            continue;
        }
        u16* out = args.out + (row + r) * args.out_stride + static_cast<i64>(head) * S::Values + 2 * quad;
#pragma unroll
        // Adding +0 changes -0 to +0, because the sign of a zero can depend on keys that are masked for the row.
        for (int n = 0; n < S::Values / 8; ++n) {
            *reinterpret_cast<u32*>(out + 8 * n) =
                pack_bf16_fast(fmaf(o[n][2 * half], inverse, 0.0f), fmaf(o[n][2 * half + 1], inverse, 0.0f));
        }
        if (args.lse != nullptr && quad == 0) {
            args.lse[(row + r) * args.lse_stride + head] =
                sum[half] > 0.0f ? logf(sum[half]) + base[half] * 0.693147180559945309f : __int_as_float(0x7F800000);
        }
    }
}

template <class S>
__device__ __forceinline__ void attend_dense(const DenseAttendArgs& args) {
    extern __shared__ __align__(128) u8 dynamic_shared[];
    DenseStorage<S>& shared = *reinterpret_cast<DenseStorage<S>*>(dynamic_shared);
    sparrow_dense::Plan& plan = *reinterpret_cast<sparrow_dense::Plan*>(args.plan);
    constexpr i32 kHalves = sparrow_dense::kUnitRows / kDenseRows;
    const u32 units = static_cast<u32>(plan.tiles) * kHalves * args.heads;
    // Blocks that run at the same time compute tiles of the same head, so that its keys are read from L2.
    for (u32 u = blockIdx.x; u < units; u += gridDim.x) {
        const u32 of_head = plan.tiles * kHalves;
        const i32 head = static_cast<i32>(u / of_head), tile = static_cast<i32>(u % of_head / kHalves);
        const i32 first = static_cast<i32>(u % kHalves) * kDenseRows;
        const i32 row = plan.tile(tile)->row + first, rows = min(plan.tile(tile + 1)->row - row, kDenseRows);
        if (rows > 0) {
            attend_unit<S>(args, shared, row, rows, head);
        }
    }
}

}  // namespace portable

#define PORTABLE_DENSE(name, ...)                                                                            \
    extern "C" __global__ void __launch_bounds__(portable::kDenseThreads)                                    \
        name(const __grid_constant__ DenseAttendArgs args) {                                                 \
        portable::attend_dense<portable::DenseShape<__VA_ARGS__>>(args);                                     \
    }                                                                                                        \
    extern "C" __device__ const u32 name##_shared = sizeof(portable::DenseStorage<portable::DenseShape<__VA_ARGS__>>);
