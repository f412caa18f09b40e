// Softmax over the scores of a block: converts scores to weights, for the two heads (tile rows) of a lane.
#pragma once

#include "sm90/sparse/math.cuh"

namespace sparrow_sparse {

// The factor of the scores of a block of keys that are divided by 2^shift, and 2^-shift; not needed if Shift is zero.
template <int Shift>
struct BlockShift {
    float scale, shift, unshift;
};
template <>
struct BlockShift<0> {};

// Type is the type of the weights: half precision or bf16. If Shift is not zero, some blocks of keys are divided by
// 2^Shift in shared memory (key_shift). Their scores and weights are multiplied by the same power of two, which is
// exact; sums are not. Weights are at most 2^(kSlack + Shift), which half precision can hold.
template <class Type, int Shift = 0>
struct Softmax : BlockShift<Shift> {
    const SparseAttendArgs& args;
    Corner at;
    // For heads row and row + 8: the base of the exponents and the largest score, both in base 2, and the sum of this
    // lane's weights.
    float m0, m1, max0, max1, sum0, sum1;

    __device__ __forceinline__ explicit Softmax(const SparseAttendArgs& a) : args(a) {}

    // Must be called for each block before rebase if Shift is not zero. shifted: the keys of the block are divided.
    __device__ __forceinline__ void set_shift(bool shifted) {
        this->scale = args.score_scale * (shifted ? 1 << Shift : 1);
        this->shift = shifted ? Shift : 0;
        this->unshift = shifted ? 1.0f / (1 << Shift) : 1.0f;
    }

    // Returns the factor of the scores of a block.
    __device__ __forceinline__ float score_scale() const {
        if constexpr (Shift != 0) {
            return this->scale;
        }
        return args.score_scale;
    }

    // Sets the scores of invalid keys of a block to minus infinity.
    __device__ __forceinline__ void mask(float (&s)[32], u64 valid) const {
        if (valid != ~0ull) {
            const float never = __int_as_float(0xFF800000);
            const u64 mine = valid >> (at.lane % 4 * 2);
#pragma unroll
            for (int i = 0; i < 32; ++i) {
                s[i] = mine >> (i / 4 * 8 + i % 2) & 1 ? s[i] : never;
            }
        }
    }

    // Masks the scores as mask does, and sets high0 and high1 to the largest scores of this lane, for heads row and row
    // + 8.
    __device__ __forceinline__ void peaks(float (&s)[32], u64 valid, float& high0, float& high1) const {
        mask(s, valid);
        high0 = fmaxf(s[0], s[1]), high1 = fmaxf(s[2], s[3]);
#pragma unroll
        for (int i = 4; i < 32; i += 4) {
            high0 = fmaxf(high0, fmaxf(s[i], s[i + 1]));
            high1 = fmaxf(high1, fmaxf(s[i + 2], s[i + 3]));
        }
        high0 *= score_scale();
        high1 *= score_scale();
    }

    // Updates the bases of the exponents for a block. Sets f0 and f1 to the factors by which the previous output must
    // be multiplied. Returns false if all factors of the warp are one.
    __device__ __forceinline__ bool rebase(float (&s)[32], u64 valid, float& f0, float& f1) {
        float high0, high1;
        peaks(s, valid, high0, high1);
        max0 = fmaxf(max0, high0);
        max1 = fmaxf(max1, high1);
        f0 = f1 = 1.0f;
        if (!__any_sync(ptx::kFullMask, high0 > m0 + kSlack || high1 > m1 + kSlack)) {
            return false;
        }
#pragma unroll
        for (int d = 1; d < 4; d *= 2) {  // at least one head of the warp has exceeded its base
            high0 = fmaxf(high0, __shfl_xor_sync(ptx::kFullMask, high0, d));
            high1 = fmaxf(high1, __shfl_xor_sync(ptx::kFullMask, high1, d));
        }
        const float n0 = high0 > m0 + kSlack ? high0 : m0, n1 = high1 > m1 + kSlack ? high1 : m1;
        f0 = exp2_fast(m0 - n0);
        f1 = exp2_fast(m1 - n1);
        m0 = n0;
        m1 = n1;
        return true;
    }

    // Converts the scores of keys [16 * Step, 16 * Step + 16) to weights, as an A operand, and adds them to sums t0 and
    // t1.
    template <int Step>
    __device__ __forceinline__ void weigh_keys(const float (&s)[32], u32 (&p)[4], float& t0, float& t1) const {
        float w[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            if constexpr (Shift != 0) {
                w[i] = exp2_fast(fmaf(s[Step * 8 + i], this->scale, this->shift - (i & 2 ? m1 : m0)));
            } else {
                w[i] = exp2_fast(fmaf(s[Step * 8 + i], args.score_scale, i & 2 ? -m1 : -m0));
            }
        }
        if constexpr (Shift != 0) {
            t0 = fmaf((w[0] + w[1]) + (w[4] + w[5]), this->unshift, t0);
            t1 = fmaf((w[2] + w[3]) + (w[6] + w[7]), this->unshift, t1);
        } else {
            t0 += (w[0] + w[1]) + (w[4] + w[5]);
            t1 += (w[2] + w[3]) + (w[6] + w[7]);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            p[i] = Type::pack(w[2 * i], w[2 * i + 1]);
        }
    }

    // Replaces sum0 and sum1 by the sums over the four lanes that share a head.
    __device__ __forceinline__ void gather() {
#pragma unroll
        for (int d = 1; d < 4; d *= 2) {
            max0 = fmaxf(max0, __shfl_xor_sync(ptx::kFullMask, max0, d));
            max1 = fmaxf(max1, __shfl_xor_sync(ptx::kFullMask, max1, d));
        }
#pragma unroll
        for (int d = 1; d < 4; d *= 2) {
            sum0 += __shfl_xor_sync(ptx::kFullMask, sum0, d);
            sum1 += __shfl_xor_sync(ptx::kFullMask, sum1, d);
        }
    }
};

}  // namespace sparrow_sparse
