// Computes the input of a sublayer from the residual streams, and the weights with which its output is added back.
//
//     m      = mix * rsqrt(mean(x^2) + norm_epsilon), over all streams
//     pre_i  = sigmoid(scale[0] * m_i + base_i) + epsilon
//     post_i = 2 * sigmoid(scale[1] * m_{n+i} + base_{n+i})
//     comb   = softmax of every row of scale[2] * m_{2n+..} + base_{2n+..}, plus epsilon, then columns over their sum +
//              epsilon, then rounds - 1 times rows and columns
//     out    = sum over i of pre_i * stream_i
//
// With args.next (DeepSeek-V4.1), pre is passed on to the next sublayer, and out is the sum weighted by the pre of the
// previous sublayer (carried).
//
// Block: 256 threads, one row. For four streams of up to 4096 or 8192 aligned columns, a thread keeps its columns of
//        all streams in registers, and one lane keeps all of comb. In other cases the streams are read twice, the
//        second time from cache, and the first warp computes comb in shared memory while the other warps add the
//        streams. The choice depends only on sizes, so the bits of a row depend only on the row. Eight squares are
//        added in float32, and their sums in float64. All other arithmetic is float32; out is rounded once.
// Bytes: the streams are read; a row of hidden values is written.
#pragma once
#include "smxx/hyper/args.h"
#include "smxx/rows/norm.cuh"

constexpr i32 kMostStreams = 16;

// Returns 1 / v within one unit in the last place. The exact division is a function call, which would spill registers
// to local memory.
DEVICE f32 inverse_of(f32 v) {
    f32 r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}

DEVICE f32 sigmoid(f32 v) { return inverse_of(1.0f + expf(-v)); }

// Divides n elements, `distance` apart, by their sum + epsilon, which normalises a row or a column of comb.
DEVICE void divide_line(f32* line, i32 n, i32 distance, f32 epsilon) {
    f32 sum = epsilon;
    for (i32 j = 0; j < n; j++) sum += line[j * distance];
    const f32 inverse = inverse_of(sum);
    for (i32 j = 0; j < n; j++) line[j * distance] *= inverse;
}

DEVICE void softmax_line(f32* line, i32 n, f32 epsilon) {
    f32 most = line[0], sum = 0;
    for (i32 j = 1; j < n; j++) most = fmaxf(most, line[j]);
    for (i32 j = 0; j < n; j++) {
        line[j] = expf(line[j] - most);
        sum += line[j];
    }
    const f32 inverse = inverse_of(sum);
    for (i32 j = 0; j < n; j++) line[j] = line[j] * inverse + epsilon;
}

// Computes comb in shared memory, by one warp; a lane has a row or a column.
DEVICE void mix_comb(const HyperMixArgs& a, const f32* mix, f32 inverse, f32* matrix, f32* out) {
    const i32 n = a.streams, lane = lane_id();
    for (i32 i = lane; i < n * n; i += 32) matrix[i] = a.scale[2] * (mix[2 * n + i] * inverse) + a.base[2 * n + i];
    __syncwarp();
    if (lane < n) softmax_line(matrix + lane * n, n, a.epsilon);
    __syncwarp();
    if (lane < n) divide_line(matrix + lane, n, n, a.epsilon);
    for (i32 round = 1; round < a.rounds; round++) {
        __syncwarp();
        if (lane < n) divide_line(matrix + lane * n, n, 1, a.epsilon);
        __syncwarp();
        if (lane < n) divide_line(matrix + lane, n, n, a.epsilon);
    }
    __syncwarp();
    for (i32 i = lane; i < n * n; i += 32) out[i] = matrix[i];
}

// Computes out, the weighted sum of the streams, by threads `first` to kThreads - 1 of the block.
DEVICE void mix_streams(const HyperMixArgs& a, const u16* x, const f32* pre, u16* out, i32 first, bool vectors) {
    const i32 thread = threadIdx.x - first, threads = kThreads - first;
    if (vectors) {
        for (i32 c = 8 * thread; c < a.hidden; c += 8 * threads) {
            f32 sum[8] = {};
            for (i32 i = 0; i < a.streams; i++) {
                f32 v[8];
                unpack_8(*reinterpret_cast<const uint4*>(x + static_cast<i64>(i) * a.hidden + c), v);
#pragma unroll
                for (int j = 0; j < 8; j++) sum[j] = __fmaf_rn(pre[i], v[j], sum[j]);
            }
            *reinterpret_cast<uint4*>(out + c) = pack_8(sum);
        }
        return;
    }
    for (i32 c = thread; c < a.hidden; c += threads) {
        f32 sum = 0;
        for (i32 i = 0; i < a.streams; i++) {
            sum = __fmaf_rn(pre[i], bf16_low(x[static_cast<i64>(i) * a.hidden + c]), sum);
        }
        out[c] = static_cast<u16>(bf16_bits(sum));
    }
}

constexpr i32 kFour = 4; // streams whose comb a lane keeps

// Returns the weight of stream i in out: carried, which is the pre of the previous sublayer. Must be called before any
// thread of the block writes next.
DEVICE f32 carried_weight(const HyperMixArgs& a, i64 row, i32 i) {
    if (a.carried == nullptr) return i == 0 ? 1.0f : 0.0f;
    return a.carried[row * a.carried_stride + i];
}

// Divides four elements by their sum + epsilon, which normalises a row or a column of comb.
DEVICE void divide_four(f32& v0, f32& v1, f32& v2, f32& v3, f32 epsilon) {
    const f32 inverse = inverse_of((((epsilon + v0) + v1) + v2) + v3);
    v0 *= inverse;
    v1 *= inverse;
    v2 *= inverse;
    v3 *= inverse;
}

// Computes comb for four streams. m holds the elements of mix for comb, already multiplied by inverse.
DEVICE void comb_four(const HyperMixArgs& a, f32 (&m)[kFour][kFour], f32* out) {
#pragma unroll
    for (int i = 0; i < kFour; i++) {
        const f32 most = fmaxf(fmaxf(m[i][0], m[i][1]), fmaxf(m[i][2], m[i][3]));
        f32 sum = 0;
#pragma unroll
        for (int j = 0; j < kFour; j++) {
            m[i][j] = expf(m[i][j] - most);
            sum += m[i][j];
        }
        const f32 inverse = inverse_of(sum);
#pragma unroll
        for (int j = 0; j < kFour; j++) m[i][j] = m[i][j] * inverse + a.epsilon;
    }
#pragma unroll
    for (int j = 0; j < kFour; j++) divide_four(m[0][j], m[1][j], m[2][j], m[3][j], a.epsilon);
#pragma unroll 1
    for (i32 round = 1; round < a.rounds; round++) {
#pragma unroll
        for (int i = 0; i < kFour; i++) divide_four(m[i][0], m[i][1], m[i][2], m[i][3], a.epsilon);
#pragma unroll
        for (int j = 0; j < kFour; j++) divide_four(m[0][j], m[1][j], m[2][j], m[3][j], a.epsilon);
    }
#pragma unroll
    for (int i = 0; i < kFour * kFour; i++) out[i] = m[i / kFour][i % kFour];
}

// Computes a row with four streams. A thread keeps Pieces pieces of 8 columns of each stream in registers.
template <int Pieces> DEVICE void mix_four(const HyperMixArgs& a) {
    const i64 row = blockIdx.x;
    const i32 t = threadIdx.x;
    const u16* x = a.x + row * a.x_stride;
    uint4 held[Pieces][kFour];
#pragma unroll
    for (int p = 0; p < Pieces; p++) {
        const i32 c = 8 * (t + p * kThreads);
#pragma unroll
        for (int i = 0; i < kFour; i++) {
            held[p][i] = c < a.hidden ? *reinterpret_cast<const uint4*>(x + static_cast<i64>(i) * a.hidden + c)
                                      : make_uint4(0, 0, 0, 0);
        }
    }
    // The values of mix that every thread needs are loaded early to hide their latency.
    const f32* mix = a.mix + row * a.mix_stride;
    f32 pre[kFour], base[kFour], carried[kFour];
    const f32 scale = a.scale[0];
#pragma unroll
    for (int i = 0; i < kFour; i++) {
        pre[i] = mix[i];
        base[i] = a.base[i];
        if (a.next != nullptr) carried[i] = carried_weight(a, row, i);
    }
    f64 sum = 0;
#pragma unroll
    for (int p = 0; p < Pieces; p++) {
#pragma unroll
        for (int i = 0; i < kFour; i++) sum = __dadd_rn(sum, eight_squares(held[p][i]));
    }
    RMSNormArgs all{};
    all.columns = kFour * a.hidden;
    all.epsilon = a.norm_epsilon;
    const f32 inverse = inverse_root(block_total(sum), all);
#pragma unroll
    for (int i = 0; i < kFour; i++) {
        pre[i] = sigmoid(scale * (pre[i] * inverse) + base[i]) + a.epsilon;
        if (a.next != nullptr) { // all threads read carried before the barrier of block_total
            if (t == 64) a.next[row * a.next_stride + i] = pre[i];
            pre[i] = carried[i];
        }
    }
#pragma unroll
    for (int p = 0; p < Pieces; p++) {
        const i32 c = 8 * (t + p * kThreads);
        f32 mixed[8] = {};
#pragma unroll
        for (int i = 0; i < kFour; i++) {
            f32 v[8];
            unpack_8(held[p][i], v);
#pragma unroll
            for (int j = 0; j < 8; j++) mixed[j] = __fmaf_rn(pre[i], v[j], mixed[j]);
        }
        if (c < a.hidden) *reinterpret_cast<uint4*>(a.out + row * a.out_stride + c) = pack_8(mixed);
    }
    if (a.post != nullptr && t >= 32 && t < 32 + kFour) {
        const i32 i = t - 32;
        a.post[row * a.post_stride + i] = 2.0f * sigmoid(a.scale[1] * (mix[kFour + i] * inverse) + a.base[kFour + i]);
    }
    if (a.comb != nullptr && t == 0) {
        f32 m[kFour][kFour];
#pragma unroll
        for (int i = 0; i < kFour * kFour; i++) {
            m[i / kFour][i % kFour] = a.scale[2] * (mix[2 * kFour + i] * inverse) + a.base[2 * kFour + i];
        }
        comb_four(a, m, a.comb + row * a.comb_stride);
    }
}

template <int Pieces> DEVICE void hyper_mix_body(const HyperMixArgs& a) {
    __shared__ f32 pre[kMostStreams];
    __shared__ f32 matrix[kMostStreams * kMostStreams];
    begin_after_previous();
    const i64 row = blockIdx.x;
    const i32 width = a.post != nullptr ? a.streams * (2 + a.streams) : a.streams;
    if (a.kept != nullptr) {
        for (i32 i = threadIdx.x; i < width; i += kThreads) {
            a.kept[row * a.kept_stride + i] = a.mix[row * a.mix_stride + i];
        }
    }
    const u16* x = a.x + row * a.x_stride;
    const bool vectors = a.hidden % 8 == 0 && aligned_16(a.x, 2 * a.x_stride) && aligned_16(a.out, 2 * a.out_stride);
    if (a.streams == kFour && vectors && a.hidden <= 8 * kThreads * Pieces) return mix_four<Pieces>(a);
    RMSNormArgs all{};
    all.columns = a.streams * a.hidden;
    all.epsilon = a.norm_epsilon;
    const f32 inverse = inverse_root(block_total(squares<kThreads>(all, x, threadIdx.x, vectors)), all);
    const f32* mix = a.mix + row * a.mix_stride;
    const i32 i = threadIdx.x, n = a.streams;
    if (i < n) {
        pre[i] = sigmoid(a.scale[0] * (mix[i] * inverse) + a.base[i]) + a.epsilon;
        if (a.next != nullptr) { // a thread reads its element of carried before it writes this element of next
            const f32 own = pre[i];
            pre[i] = carried_weight(a, row, i);
            a.next[row * a.next_stride + i] = own;
        }
        if (a.post != nullptr) {
            a.post[row * a.post_stride + i] = 2.0f * sigmoid(a.scale[1] * (mix[n + i] * inverse) + a.base[n + i]);
        }
    }
    __syncthreads();
    i32 first = 0;
    if (a.comb != nullptr) {
        if (threadIdx.x < 32) return mix_comb(a, mix, inverse, matrix, a.comb + row * a.comb_stride);
        first = 32;
    }
    mix_streams(a, x, pre, a.out + row * a.out_stride, first, vectors);
}
