// The output of a sublayer with experts, for the kernels that add it to residual streams.
#pragma once

#include "smxx/quant/norm.cuh"

namespace sparrow_hyper {

// Returns the output in eight columns of a row: sub, with the delta and the results of the experts added. Stores it
// too. `Together` results are loaded at a time.
template <int Together>
DEVICE uint4 summed_output(const NormQuantiseArgs& s, const RowChoices& choices, uint4 sub, i64 row, i32 column) {
    f32 v[8];
    unpack_piece(sub, v);
    if (s.delta != nullptr) {
        f32 d[8];
        unpack_piece(*reinterpret_cast<const uint4*>(s.delta + row * s.delta_stride + column), d);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = __fadd_rn(v[j], d[j]);
        unpack_piece(pack_piece(v), v);
    }
    add_results<Together>(s, row, column, choices, v);
    const uint4 sum = pack_piece(v);
    *reinterpret_cast<uint4*>(s.sum + row * s.sum_stride + column) = sum;
    return sum;
}

} // namespace sparrow_hyper
