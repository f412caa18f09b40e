// Gated activation: out = silu(gate) * up, clamped if a limit is given (activation.cuh). The arithmetic is float32,
// rounded once.
//
// In, out: [rows, columns] f32 or bf16.
// Block:   256 threads, 2048 columns of one row. Rows of bf16 that are aligned to 16 bytes are accessed 16 bytes at a
//          time.
// Bytes:   two rows are read and one is written.
// H200:    18432 columns: 1 row 1.4 us, 64 rows 3.6, 4096 rows 110 (4.1 TB/s, 96 % of the copy bandwidth).
#pragma once
#include "smxx/activation.cuh"
#include "smxx/floats.cuh"
#include "smxx/gate/args.h"
#include "smxx/quant/quantise.cuh"

constexpr i32 kGateColumns = 8 * kThreads;

DEVICE void gate_body(const GateArgs& a) {
    begin_after_previous();
    i64 row = blockIdx.x;
    i32 from = blockIdx.y * kGateColumns, to = min(a.columns, from + kGateColumns);
    bool vectors = a.gate_type == kBF16 && a.up_type == kBF16 && a.out_type == kBF16 && a.columns % 8 == 0 &&
                   aligned_16(a.gate, 2 * a.gate_stride) && aligned_16(a.up, 2 * a.up_stride) &&
                   aligned_16(a.out, 2 * a.out_stride);
    i64 gate = row * a.gate_stride, up = row * a.up_stride, out = row * a.out_stride;
    if (vectors) {
        i32 i = from + 8 * threadIdx.x;
        if (i >= to) return;
        f32 g[8], u[8];
        unpack_8(*reinterpret_cast<const uint4*>(static_cast<const u16*>(a.gate) + gate + i), g);
        unpack_8(*reinterpret_cast<const uint4*>(static_cast<const u16*>(a.up) + up + i), u);
#pragma unroll
        for (int j = 0; j < 8; j++) g[j] = gated(g[j], u[j], a.limit);
        *reinterpret_cast<uint4*>(static_cast<u16*>(a.out) + out + i) = pack_8(g);
        return;
    }
    for (i32 i = from + threadIdx.x; i < to; i += kThreads) {
        write_float(a.out, out + i, a.out_type,
                    gated(read_float(a.gate, gate + i, a.gate_type), read_float(a.up, up + i, a.up_type), a.limit));
    }
}

// Applies the activation to bf16 rows, rounds it to bf16 and quantises it as quantise_rows does.
DEVICE void gate_quantise_body(const GateQuantiseArgs& a) {
    begin_after_previous();
    const i32 segments = (a.columns + 32 * kPieceColumns - 1) / (32 * kPieceColumns);
    const i64 unit = warp_row(), row = unit / segments;
    if (row >= a.rows) return;
    const i32 column = static_cast<i32>(unit - row * segments) * 32 * kPieceColumns + lane_id() * kPieceColumns;
    f32 v[8] = {};
    if (column < a.columns) {
        f32 u[8];
        unpack_8(*reinterpret_cast<const uint4*>(a.gate + row * a.gate_stride + column), v);
        unpack_8(*reinterpret_cast<const uint4*>(a.up + row * a.up_stride + column), u);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = gated(v[j], u[j], a.limit);
        const uint4 packed = pack_8(v);
        *reinterpret_cast<uint4*>(a.out + row * a.out_stride + column) = packed;
        unpack_8(packed, v);
    }
    f32 scale;
    const uint2 w = quantise_piece(v, a.exact, scale);
    if (column < a.columns) store_piece(a.codes + row * a.code_stride, a.scales, a.scale_stride, row, column, w, scale);
}
