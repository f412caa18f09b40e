// Copies or adds rows: out = x or out += x, rounded once to the type of out. A copy between equal types keeps the bits
// of every value.
//
// In, out: [rows, columns] f32 or bf16. A thread has 16 bytes of a row if both tensors have one type and are aligned
//          to 16 bytes, otherwise one element. Short rows share a block.
// Bytes:   each row is read and written once; an addition also reads the output.
#pragma once
#include "smxx/floats.cuh"
#include "smxx/move/args.h"

DEVICE u32 add_bits(u32 x, u32 y) { return __float_as_uint(__fadd_rn(__uint_as_float(x), __uint_as_float(y))); }

DEVICE void move_body(const MoveArgs& a) {
    begin_after_previous();
    i32 bytes = element_bytes(a.out_type), each = 16 / bytes;
    bool vectors = a.x_type == a.out_type && a.columns % each == 0 && aligned_16(a.x, a.x_stride * bytes) &&
                   aligned_16(a.out, a.out_stride * bytes);
    i64 pieces = vectors ? a.columns / each : a.columns;
    i64 at = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x;
    i64 row = at / pieces, piece = at - row * pieces;
    if (row >= a.rows) return;
    if (!vectors) {
        i64 out = row * a.out_stride + piece;
        if (a.x_type == a.out_type && !a.add) {
            i64 x = row * a.x_stride + piece;
            if (bytes == 4) static_cast<u32*>(a.out)[out] = static_cast<const u32*>(a.x)[x];
            else static_cast<u16*>(a.out)[out] = static_cast<const u16*>(a.x)[x];
            return;
        }
        f32 v = read_float(a.x, row * a.x_stride + piece, a.x_type);
        if (a.add) v = __fadd_rn(v, read_float(a.out, out, a.out_type));
        write_float(a.out, out, a.out_type, v);
        return;
    }
    const u8* from = static_cast<const u8*>(a.x) + row * a.x_stride * bytes;
    uint4* out = reinterpret_cast<uint4*>(static_cast<u8*>(a.out) + row * a.out_stride * bytes + 16 * piece);
    uint4 v = *reinterpret_cast<const uint4*>(from + 16 * piece);
    if (a.add && a.out_type == kBF16) {
        f32 x[8], y[8];
        unpack_8(v, x);
        unpack_8(*out, y);
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = __fadd_rn(x[i], y[i]);
        v = pack_8(x);
    } else if (a.add) {
        v = make_uint4(add_bits(v.x, out->x), add_bits(v.y, out->y), add_bits(v.z, out->z), add_bits(v.w, out->w));
    }
    *out = v;
}
