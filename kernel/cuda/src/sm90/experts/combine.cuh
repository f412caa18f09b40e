// Adds the weighted sum of the experts' results to the rows: out[t] += sum over j of weights[t, j] * results[t, j], in
// the order of j, in float32, rounded once to bf16. A choice without an expert adds nothing.
//
// Block: 256 threads, 2048 columns of one row.
// Bytes: `top` rows of results are read; out is read and written.
#pragma once

#include "sm90/experts/args.h"
#include "smxx/floats.cuh"

namespace sparrow_experts {

constexpr int kCombineColumns = 8 * ::kThreads;

__device__ __forceinline__ void combine(const ExpertsArgs& args) {
    begin_after_previous();
    const i64 row = blockIdx.x;
    const i32 column = blockIdx.y * kCombineColumns + 8 * threadIdx.x;
    if (column >= args.hidden) {
        return;
    }
    f32 sum[8] = {};
    const u16* results = args.results + row * args.top * args.hidden + column;
    for (i32 j = 0; j < args.top; ++j) {
        const i32 id = args.ids[row * args.id_stride + j];
        if (id < 0 || id >= args.experts) {
            continue;
        }
        const f32 weight = args.weights[row * args.weight_stride + j];
        f32 v[8];
        unpack_8(*reinterpret_cast<const uint4*>(results + static_cast<i64>(j) * args.hidden), v);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            sum[i] = __fmaf_rn(weight, v[i], sum[i]);
        }
    }
    uint4* out = reinterpret_cast<uint4*>(args.out + row * args.out_stride + column);
    f32 v[8];
    unpack_8(*out, v);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        v[i] = __fadd_rn(v[i], sum[i]);
    }
    *out = pack_8(v);
}

}  // namespace sparrow_experts
