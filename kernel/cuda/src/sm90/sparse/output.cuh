// Writes the result of a unit: the row in bf16, or a partial result for the combine kernel, and the softmax
// statistics.
#pragma once

#include "ptx/wgmma_half.cuh"
#include "sm90/sparse/storage.cuh"

namespace sparrow_sparse {

constexpr float kLn2 = 0.693147180559945309f, kLog2e = 1.44269504088896341f;

__device__ __forceinline__ float exp2_fast(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

// Transposes 4 x 4 words over four adjacent lanes: lane q sends word k to lane k and receives word q of every lane.
__device__ __forceinline__ void transpose_quad(u32 (&w)[4], u32 q) {
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
        const u32 got = __shfl_xor_sync(ptx::kFullMask, q & 1 ? w[k] : w[k + 1], 1);
        w[k] = q & 1 ? got : w[k];
        w[k + 1] = q & 1 ? w[k + 1] : got;
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) {
        const u32 got = __shfl_xor_sync(ptx::kFullMask, q & 2 ? w[k] : w[k + 2], 2);
        w[k] = q & 2 ? got : w[k];
        w[k + 2] = q & 2 ? w[k + 2] : got;
    }
}

// Restores the order of eight columns that are interleaved (interleaved).
__device__ __forceinline__ void restore_columns(u32 (&w)[4]) {
    const u32 a = w[0], b = w[1], c = w[2], d = w[3];
    w[0] = __byte_perm(a, b, 0x5410);
    w[1] = __byte_perm(c, d, 0x5410);
    w[2] = __byte_perm(a, b, 0x7632);
    w[3] = __byte_perm(c, d, 0x7632);
}

// Exchanges pairs of interleaved columns over four adjacent lanes: lane q sends columns q and q + 4 of eight columns
// and receives columns 2q and 2q + 1.
__device__ __forceinline__ u32 restore_pair(u32 w) {
    const u32 lane = threadIdx.x % 32, from = lane / 4 * 4 + lane % 2 * 2;
    const u32 a = __shfl_sync(ptx::kFullMask, w, from), b = __shfl_sync(ptx::kFullMask, w, from + 1);
    return __byte_perm(a, b, lane % 4 < 2 ? 0x5410 : 0x7632);
}

// The position of a lane in a [64, 256] accumulator: heads row and row + 8, and columns 2*(lane%4) and 2*(lane%4) + 1
// of every 8 columns.
struct Corner {
    i32 warp, lane, row;

    __device__ __forceinline__ Corner() {
        warp = threadIdx.x / 32 % 4;
        lane = threadIdx.x % 32;
        row = warp * 16 + lane / 4;
    }
};

// Multiplies o by the factors and writes it to columns [column, column + 2 * N) of 64 heads of a row, in bf16.
// Interleaved: the columns of o are interleaved (interleaved).
template <bool Interleaved = false, int N>
__device__ __forceinline__ void write_whole(const SparseAttendArgs& args, i32 row, i32 first_head, const Corner& at,
    i32 column, const float (&o)[N], float f0, float f1) {
    const u32 q = at.lane % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const i32 head = first_head + at.row + half * 8;
        const float f = half ? f1 : f0;
        u16* dst = args.out + row * args.out_stride + static_cast<i64>(head) * kValues + column + q * 8;
#pragma unroll
        for (int j = 0; j < N / 4; j += 4) {
            u32 w[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                w[k] = ptx::Bf16::pack(o[(j + k) * 4 + half * 2] * f, o[(j + k) * 4 + half * 2 + 1] * f);
            }
            transpose_quad(w, q);
            if constexpr (Interleaved) {
                restore_columns(w);
            }
            if (head < args.heads) {
                *reinterpret_cast<uint4*>(dst + j * 8) = make_uint4(w[0], w[1], w[2], w[3]);
            }
        }
    }
}

template <class Type>
constexpr int kPartBytes = 2;
template <>
constexpr int kPartBytes<ptx::Bf16> = 4;

// Layout of a partial result, in the order in which the lanes hold it, so that writes and reads are whole cache lines:
// [rows, segments, head groups, column halves, heads row and row + 8, eighths, chunks][128 lanes][16 bytes]. An eighth
// is four times eight columns of a head. Half precision has eight times the resolution of the bf16 result; bf16 rows
// have a wider range and use fp32.
template <class Type>
struct Parts {
    static constexpr int kChunks = kPartBytes<Type> / 2;  // 16-byte chunks per eighth and lane
    static constexpr int kEighths = 8;
    static constexpr i64 kEighthBytes = kChunks * 128 * 16;
    static constexpr i64 kHalfBytes = 2 * kEighths * kEighthBytes;  // bytes for 64 heads and 256 columns

    static __device__ __forceinline__ u8* at(const SparseAttendArgs& args, i32 row, i32 segment, i32 head, i32 column) {
        const i64 unit = (static_cast<i64>(row) * args.segments + segment) * head_groups(args) + head / kHeads;
        return static_cast<u8*>(args.partial) + (unit * 2 + column / kHalfColumns) * kHalfBytes + threadIdx.x % 128 *
            16;
    }
};

template <class Type, bool Interleaved = false>
__device__ __forceinline__ void write_part(u8* dst, const float (&o)[128], float f0, float f1) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float f = half ? f1 : f0;
#pragma unroll
        for (int e = 0; e < Parts<Type>::kEighths; ++e) {
            float v[8];
#pragma unroll
            for (int k = 0; k < 8; ++k) {
                v[k] = o[(e * 4 + k / 2) * 4 + half * 2 + k % 2] * f;
            }
            u8* to = dst + (half * Parts<Type>::kEighths + e) * Parts<Type>::kEighthBytes;
            if constexpr (kPartBytes<Type> == 4) {
                *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
                *reinterpret_cast<float4*>(to + 128 * 16) = make_float4(v[4], v[5], v[6], v[7]);
            } else if constexpr (Interleaved) {
                *reinterpret_cast<uint4*>(to) = make_uint4(restore_pair(Type::pack(v[0], v[1])),
                    restore_pair(Type::pack(v[2], v[3])), restore_pair(Type::pack(v[4], v[5])),
                    restore_pair(Type::pack(v[6], v[7])));
            } else {
                *reinterpret_cast<uint4*>(to) = make_uint4(Type::pack(v[0], v[1]), Type::pack(v[2], v[3]),
                    Type::pack(v[4], v[5]), Type::pack(v[6], v[7]));
            }
        }
    }
}

template <class Type, bool Interleaved>
__device__ __forceinline__ void write_output(const SparseAttendArgs& args, const Unit& unit, const Corner& at,
    i32 column, const float (&o)[128], float f0, float f1) {
    if (args.segments == 1) {
        write_whole<Interleaved>(args, unit.row, unit.head, at, column, o, f0, f1);
    } else {
        write_part<Type, Interleaved>(Parts<Type>::at(args, unit.row, unit.segment, unit.head, column), o, f0, f1);
    }
}

// Writes zeros to 64 heads and 256 columns of a row without keys.
__device__ __forceinline__ void write_zeros(const SparseAttendArgs& args, const Unit& unit, const Corner& at,
    i32 column) {
#pragma unroll 1
    for (i32 head = unit.head + at.warp; head < min(unit.head + kHeads, args.heads); head += 4) {
        u16* dst = args.out + unit.row * args.out_stride + static_cast<i64>(head) * kValues + column;
        *reinterpret_cast<uint4*>(dst + at.lane * 8) = make_uint4(0, 0, 0, 0);
    }
}

// Returns a head's sink in base 2, or minus infinity if there are no sinks.
__device__ __forceinline__ float sink_of(const SparseAttendArgs& args, i32 head) {
    return args.sinks != nullptr && head < args.heads ? args.sinks[head] * kLog2e : __int_as_float(0xFF800000);
}

// Returns the final factor of a head's output: the inverse of its sum, relative to m and including the sink. It is
// zero for a row without keys.
__device__ __forceinline__ float final_factor(const SparseAttendArgs& args, float sink, float m, float sum) {
    return sum > 0.0f ? args.value_scale / (sum + exp2_fast(sink - m)) : 0.0f;
}

// Computes the final factors f0 and f1 for heads row and row + 8 of a unit. For a partial result, a factor is the
// inverse of the sum; the combine kernel applies sink and value scale.
__device__ __forceinline__ void unit_factors(const SparseAttendArgs& args, float sink0, float sink1, float m0, float m1,
    float sum0, float sum1, float& f0, float& f1) {
    if (args.segments == 1) {
        f0 = final_factor(args, sink0, m0, sum0);
        f1 = final_factor(args, sink1, m1, sum1);
    } else {
        f0 = sum0 > 0.0f ? 1.0f / sum0 : 0.0f;
        f1 = sum1 > 0.0f ? 1.0f / sum1 : 0.0f;
    }
}

// Writes the log-sum-exp and the largest score of a row and head. sum is relative to base m.
__device__ __forceinline__ void write_stats(const SparseAttendArgs& args, i32 row, i32 head, float m, float largest,
    float sum) {
    const float infinity = __int_as_float(0x7F800000);
    if (args.lse != nullptr) {
        args.lse[row * args.lse_stride + head] = sum > 0.0f ? logf(sum) + m * kLn2 : infinity;
    }
    if (args.max != nullptr) {
        args.max[row * args.max_stride + head] = sum > 0.0f ? largest * kLn2 : -infinity;
    }
}

// Writes base m, sum and largest score of a segment and head for the combine kernel. segment is row * segments + the
// number of the segment in the row.
__device__ __forceinline__ void write_part_stats(const SparseAttendArgs& args, i64 segment, i32 head, float m,
    float largest, float sum) {
    *reinterpret_cast<float4*>(args.stats + (segment * args.heads + head) * 4) = make_float4(m, sum, largest, 0.0f);
}

}  // namespace sparrow_sparse
