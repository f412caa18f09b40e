// Adds the output of a sublayer to the residual streams: stream_k = post_k * sub + sum over j of comb[j, k] *
// stream_j. The sum runs over the first index of comb.
//
// Block: 256 threads, 2048 columns of a row. A thread has eight adjacent columns if there are at most four streams
//        and rows are aligned to 16 bytes; otherwise it processes one column at a time. In both cases a value is
//        summed in the order of j, in float32, and rounded once.
// Bytes: the streams are read and written, the output of the sublayer is read.
#pragma once
#include "smxx/hyper/mix.cuh"

constexpr i32 kPostColumns = 8 * kThreads;

DEVICE void read_columns(f32 (&v)[8], const u16* from) { unpack_8(*reinterpret_cast<const uint4*>(from), v); }
DEVICE void read_columns(f32 (&v)[1], const u16* from) { v[0] = bf16_low(*from); }
DEVICE void write_columns(const f32 (&v)[8], u16* to) { *reinterpret_cast<uint4*>(to) = pack_8(v); }
DEVICE void write_columns(const f32 (&v)[1], u16* to) { *to = static_cast<u16>(bf16_bits(v[0])); }

// Updates `Each` columns of up to Most streams, starting at column c; o is the sublayer's output for these columns.
template <int Most, int Each>
DEVICE void post_columns(const HyperPostArgs& a, u16* x, const f32 (&o)[Each], const f32* post, const f32* comb,
                         i32 c) {
    f32 old[Most][Each];
#pragma unroll
    for (int j = 0; j < Most; j++) {
        if (j < a.streams) read_columns(old[j], x + static_cast<i64>(j) * a.hidden + c);
    }
#pragma unroll
    for (int k = 0; k < Most; k++) {
        if (k >= a.streams) break;
        f32 sum[Each];
#pragma unroll
        for (int e = 0; e < Each; e++) sum[e] = __fmul_rn(post[k], o[e]);
#pragma unroll
        for (int j = 0; j < Most; j++) {
            if (j >= a.streams) break;
            const f32 weight = comb[j * a.streams + k];
#pragma unroll
            for (int e = 0; e < Each; e++) sum[e] = __fmaf_rn(weight, old[j][e], sum[e]);
        }
        write_columns(sum, x + static_cast<i64>(k) * a.hidden + c);
    }
}

DEVICE void hyper_post_body(const HyperPostArgs& a) {
    __shared__ f32 post[kMostStreams];
    __shared__ f32 comb[kMostStreams * kMostStreams];
    begin_after_previous();
    const i64 row = blockIdx.x;
    const i32 n = a.streams, t = threadIdx.x;
    if (t < n) post[t] = a.post[row * a.post_stride + t];
    if (t < n * n) comb[t] = a.comb[row * a.comb_stride + t];
    __syncthreads();
    u16* x = a.x + row * a.x_stride;
    const u16* sub = a.sub + row * a.sub_stride;
    const i32 from = blockIdx.y * kPostColumns;
    if (n <= 4 && a.hidden % 8 == 0 && aligned_16(a.x, 2 * a.x_stride) && aligned_16(a.sub, 2 * a.sub_stride)) {
        if (from + 8 * t < a.hidden) {
            f32 o[8];
            read_columns(o, sub + from + 8 * t);
            post_columns<4, 8>(a, x, o, post, comb, from + 8 * t);
        }
        return;
    }
    for (i32 c = from + t; c < min(from + kPostColumns, a.hidden); c += kThreads) {
        f32 o[1];
        read_columns(o, sub + c);
        post_columns<kMostStreams, 1>(a, x, o, post, comb, c);
    }
}
