// Products with e2m1 weights whose scales fold into e4m3 codes (experts/folded.cuh). Results are bitwise equal to
// products with those codes as e4m3 weights in blocks of 128 x 128.
//
// Up to 64 rows: the kernel of few rows; a stage has the stored pieces of 64 weight rows, which the math warps widen in
// registers. More rows: the codes of a band of weight rows are written to scratch memory and multiplied as e4m3
// weights. Writing them takes a twentieth of the time of a product of 4096 rows.
#pragma once

#include "sm90/experts/folded.cuh"
#include "sm90/product/few.cuh"

namespace sparrow_product {

struct Folded : E4m3 {};

template <>
struct FewWeights<Folded> {
    using Stored = sparrow_experts::Stored<sparrow_experts::Folded>;
    static constexpr bool Held = true;
    static constexpr int StripeBytes = 4 * Stored::PieceBytes;         // bytes of 64 weight rows
    // Bytes of 64 weight rows in a stage, aligned to 1024.
    static constexpr int RoomBytes = (StripeBytes + 1023) / 1024 * 1024;

    // Fills the table of e4m3 codes of the eight magnitudes for each relative exponent.
    static __device__ __forceinline__ void fill(u8 (&table)[128]) {
        if (threadIdx.x < sparrow_experts::kExponents * 8) {
            table[threadIdx.x] = static_cast<u8>(sparrow_experts::folded_code(
                threadIdx.x % 8, static_cast<i32>(threadIdx.x / 8) + sparrow_experts::kLeastExponent));
        }
    }

    template <int N>
    static __device__ __forceinline__ void ask(float (&d)[N / 2], u32 weights, u32 inputs, u32 warp, u32 lane,
                                               u32 table) {
        sparrow_experts::Piece piece;
        piece.load(weights + warp * Stored::PieceBytes, lane);
        u32 a[kSteps][4];
        // One branch covers all steps, because code after a conditional load waits for it even if the load is skipped.
        if (__any_sync(ptx::kFullMask, sparrow_experts::small_scales(piece.scales))) {
#pragma unroll
            for (int g = 0; g < kSteps; ++g) {
                sparrow_experts::widen_columns<true>(a[g], piece.parts[g / 2], piece.scales, g, table);
            }
        } else {
#pragma unroll
            for (int g = 0; g < kSteps; ++g) {
                sparrow_experts::widen_columns<false>(a[g], piece.parts[g / 2], piece.scales, g, table);
            }
        }
        const u64 right = ptx::operand_128b(inputs);
        ptx::mma_pin(d);
        ptx::mma_fence();
#pragma unroll
        for (int g = 0; g < kSteps; ++g) {
            ptx::HeldProduct<N>::run(d, a[g], right + 2 * g, g > 0);
        }
        ptx::mma_commit();
    }
};

// Writes the codes of stored tiles as e4m3 [rows, columns]. A thread block of 256 threads has a tile and a block of 128
// columns; a warp has two pieces of 16 rows.
__device__ __forceinline__ void unfold(const UnfoldArgs& args) {
    using Weights = FewWeights<Folded>;
    constexpr int kPitch = kBlockBytes + 16;
    __shared__ u8 table[128];
    __shared__ alignas(16) u8 rows[8][16 * kPitch];
    Weights::fill(table);
    __syncthreads();
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const i32 block = blockIdx.x, tile = blockIdx.y;
    const u32 own = ptx::shared_address(rows[warp]);
#pragma unroll 1
    for (i32 p = static_cast<i32>(warp); p < Weights::Stored::Pieces; p += 8) {
        const u8* from = args.from + (static_cast<i64>(tile) * args.blocks + block) * Weights::Stored::TileBytes +
                         p * Weights::Stored::PieceBytes;
        const uint4 parts[2] = {__ldg(reinterpret_cast<const uint4*>(from) + lane),
                                __ldg(reinterpret_cast<const uint4*>(from) + 32 + lane)};
        const uint2 scales = __ldg(reinterpret_cast<const uint2*>(from + Weights::Stored::CodeBytes) + lane / 4);
        const u32 at = own + lane / 4 * kPitch + lane % 4 * 4;
#pragma unroll
        for (int g = 0; g < kSteps; ++g) {
            u32 a[4];
            sparrow_experts::widen_columns<true>(a, parts[g / 2], scales, g, ptx::shared_address(table));
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                asm volatile("st.shared.u32 [%0], %1;" ::"r"(at + i % 2 * (8 * kPitch) + g * 32 + i / 2 * 16), "r"(a[i])
                             : "memory");
            }
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const i32 r = 4 * i + static_cast<i32>(lane / 8), row = tile * 256 + p * 16 + r;
            const i32 column = block * kBlockBytes + static_cast<i32>(lane % 8) * 16;
            if (row < args.rows && column < args.columns) {
                *reinterpret_cast<uint4*>(args.to + row * args.stride + column) =
                    ptx::load_vector(own + r * kPitch + lane % 8 * 16);
            }
        }
        __syncwarp();
    }
}

}  // namespace sparrow_product
