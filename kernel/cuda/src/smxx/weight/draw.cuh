// Random values for weights that have no files. Values 2i and 2i+1 come from word i, a hash of seed and i, whose
// bytes are added in two groups of four. The sums are close to a normal distribution. Integer arithmetic and one
// multiplication give the same bits that package kernel computes on the host.
//
// Out:    [rows, columns] f32, bf16 or e4m3; columns and stride are even.
// Thread: one word, which gives two values.
// Bytes:  each value is written once.
#pragma once
#include "smxx/floats.cuh"
#include "smxx/weight/args.h"

constexpr i32 kE4M3 = 3;    // type code, in addition to those of floats.cuh
constexpr i32 kBellMean = 510; // mean of the sum of four random bytes

DEVICE u64 mixed(u64 z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

DEVICE f32 bell(const DrawArgs& a, u32 sum) {
    return __fadd_rn(a.mean, __fmul_rn(static_cast<f32>(static_cast<i32>(sum) - kBellMean), a.step));
}

DEVICE void draw_body(const DrawArgs& a) {
    begin_after_previous();
    i64 word = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x, each = a.columns / 2;
    i64 row = word / each;
    if (row >= a.rows) return;
    i64 number = (a.first + row * a.from_stride) / 2 + word - row * each;
    u64 w = mixed(a.seed + static_cast<u64>(number + 1) * 0x9E3779B97F4A7C15ull);
    w = (w & 0x00FF00FF00FF00FFull) + (w >> 8 & 0x00FF00FF00FF00FFull); // sums of two bytes in 16-bit lanes
    w += w >> 16;                                                       // sums of four in lanes 0 and 2
    f32 low = bell(a, w & 0xFFFF), high = bell(a, w >> 32 & 0xFFFF);
    i64 at = row * a.stride + 2 * (word - row * each);
    if (a.type == kE4M3) {
        *reinterpret_cast<u16*>(static_cast<u8*>(a.out) + at) = static_cast<u16>(pack_e4m3(low, high));
    } else if (a.type == kBF16) {
        *reinterpret_cast<u32*>(static_cast<u16*>(a.out) + at) = pack_bf16(low, high);
    } else {
        static_cast<f32*>(a.out)[at] = low;
        static_cast<f32*>(a.out)[at + 1] = high;
    }
}
