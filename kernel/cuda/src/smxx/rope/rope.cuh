// Computes rotary angles by position, and applies them to heads.
//
// Angles: out[t] = cos(p * f_i), sin(p * f_i), times scale. p * f is rounded to float32; its cosine and sine are then
//         computed in float64 and rounded once. A thread has one frequency of one row. The table is written once per
//         step, and every layer reads it.
// Rotate: x [rows, heads, head_dim] f32 or bf16: rotates columns [offset, offset + rope) of every head in place, and
//         also writes them to a second tensor if one is given. Each product and sum is rounded once to float32. A
//         block has 256 threads and up to 1024 pairs of one row.
// Bytes:  the rotated columns are read and written.
#pragma once
#include "smxx/floats.cuh"
#include "smxx/rope/args.h"

// Computes cosine and sine of an angle of at most 2^31. The quadrant is subtracted with pi/2 in two parts; then series
// are summed whose next term is below 2^-60. The library functions handle unbounded arguments and therefore keep an
// array in local memory.
DEVICE void cos_sin(f64 angle, f64& cosine, f64& sine) {
    f64 turns = rint(__dmul_rn(angle, 0.63661977236758134308)); // 2/pi
    f64 r = __fma_rn(-turns, 1.5707963267948965580, angle);     // pi/2, upper part
    r = __fma_rn(-turns, 6.1232339957367660359e-17, r);         // pi/2, lower part
    f64 q = __dmul_rn(r, r);
    f64 s = -1.0 / 121645100408832000.0; // 1/19!
    s = __fma_rn(s, q, 1.0 / 355687428096000.0);
    s = __fma_rn(s, q, -1.0 / 1307674368000.0);
    s = __fma_rn(s, q, 1.0 / 6227020800.0);
    s = __fma_rn(s, q, -1.0 / 39916800.0);
    s = __fma_rn(s, q, 1.0 / 362880.0);
    s = __fma_rn(s, q, -1.0 / 5040.0);
    s = __fma_rn(s, q, 1.0 / 120.0);
    s = __fma_rn(s, q, -1.0 / 6.0);
    s = __fma_rn(__dmul_rn(s, q), r, r);
    f64 c = 1.0 / 2432902008176640000.0; // 1/20!
    c = __fma_rn(c, q, -1.0 / 6402373705728000.0);
    c = __fma_rn(c, q, 1.0 / 20922789888000.0);
    c = __fma_rn(c, q, -1.0 / 87178291200.0);
    c = __fma_rn(c, q, 1.0 / 479001600.0);
    c = __fma_rn(c, q, -1.0 / 3628800.0);
    c = __fma_rn(c, q, 1.0 / 40320.0);
    c = __fma_rn(c, q, -1.0 / 720.0);
    c = __fma_rn(c, q, 1.0 / 24.0);
    c = __fma_rn(c, q, -0.5);
    c = __fma_rn(c, q, 1.0);
    i32 quadrant = static_cast<i32>(static_cast<i64>(turns) & 3);
    f64 x = quadrant & 1 ? s : c, y = quadrant & 1 ? c : s;
    cosine = quadrant == 1 || quadrant == 2 ? -x : x;
    sine = quadrant >= 2 ? -y : y;
}

// Computes 256 angles of the table, starting at number 256 * block.
DEVICE void angles_body(const AnglesArgs& a, i64 block) {
    begin_after_previous();
    i64 at = block * kThreads + threadIdx.x;
    if (at >= static_cast<i64>(a.rows) * a.count) return;
    i64 row = at / a.count;
    i32 i = static_cast<i32>(at - row * a.count);
    f32 angle = __fmul_rn(static_cast<f32>(a.positions[row * a.position_stride]), a.frequency[i]);
    f64 c, s;
    cos_sin(angle, c, s);
    f32* out = a.out + row * a.out_stride + i;
    out[0] = __double2float_rn(__dmul_rn(c, a.scale));
    out[a.count] = __double2float_rn(__dmul_rn(s, a.scale));
}

constexpr i32 kPairsPerBlock = 4 * kThreads;

// Rotates up to 1024 pairs of a row, starting at pair 1024 * block.
DEVICE void rotate_body(const RotateArgs& a, i64 row, i32 block) {
    begin_after_previous();
    i32 half = a.rope / 2, pairs = a.heads * half, end = min(pairs, (block + 1) * kPairsPerBlock);
    const f32* angles = a.angles + row * a.angle_stride;
    for (i32 p = block * kPairsPerBlock + threadIdx.x; p < end; p += kThreads) {
        i32 head = p / half, i = p - head * half;
        i32 one = a.interleaved ? 2 * i : i, two = a.interleaved ? 2 * i + 1 : i + half;
        i64 at = row * a.x_stride + static_cast<i64>(head) * a.head_dim + a.offset;
        f32 x = read_float(a.x, at + one, a.x_type), y = read_float(a.x, at + two, a.x_type);
        if (a.angles != nullptr) {
            f32 sine = angles[half + i];
            rotate(x, y, angles[i], a.inverse ? -sine : sine);
            write_float(a.x, at + one, a.x_type, x);
            write_float(a.x, at + two, a.x_type, y);
        }
        if (a.copy != nullptr) {
            i64 to = row * a.copy_stride + static_cast<i64>(head) * a.copy_dim + a.copy_offset;
            write_float(a.copy, to + one, a.x_type, x);
            write_float(a.copy, to + two, a.x_type, y);
        }
    }
}
