// Rows of DeepSeek-V4.1, for the kernels of one (shared.cuh) and of two thread blocks per unit (shared_duo.cuh). A row
// of the window has 528 bytes: 512 e4m3 codes and one exponent per 32 codes. An entry that layers share has 288 bytes:
// 512 e2m1 codes and one e4m3 scale per 16 codes. Half precision holds every value of both exactly: a value of an entry
// has 6 significant bits and is zero or at least 2^-10.
//
// The bits of an e2m1 code are shifted to the sign, the exponent and the mantissa of a number in half precision, which
// is then 2^-14 times the value. The factor of this number and of its scale, which must be below 2^16, is 2^7.
// Therefore entries are stored divided by 2^7 (key_shift). A shift moves two codes of a word, which are four codes
// apart, to the two halves of a register. Their columns stay in this order (interleaved), because restoring it would
// take as many instructions as the conversion through e4m3, which converts two adjacent codes.
#pragma once

#include "sm90/sparse/convert.cuh"
#include "sm90/sparse/scout.cuh"

namespace sparrow_sparse {

// Types of rows in the kernels of V4.1 have this base. The rows of the two streams can have different formats; `scales`
// of a SelectionView is the number of bytes of a row.
struct SharedFormat {
    using Type = ptx::F16;
    static constexpr int Tiles = 8;
    static constexpr int kBf16Tiles = 0;
    static constexpr bool kTwoStreams = true;
    static constexpr bool kMixed = true;
    static constexpr i64 kRowBytes = 528, kSecondBytes = 288;
    static constexpr int kShift = 7;  // key_shift of entries

    static __device__ __forceinline__ bool is_entry(const SelectionView& s) { return s.scales == kSecondBytes; }
};

// Multiplies two halves by the lower or the upper half of a pair of scales.
template <bool Upper>
__device__ __forceinline__ u32 times_half(u32 halves, u32 pair) {
    u32 r;
    if constexpr (Upper) {
        asm("{ .reg .b16 lo, hi; .reg .b32 s; mov.b32 {lo, hi}, %2; mov.b32 s, {hi, hi}; mul.rn.f16x2 %0, %1, s; }"
            : "=r"(r) : "r"(halves), "r"(pair));
    } else {
        asm("{ .reg .b16 lo, hi; .reg .b32 s; mov.b32 {lo, hi}, %2; mov.b32 s, {lo, lo}; mul.rn.f16x2 %0, %1, s; }"
            : "=r"(r) : "r"(halves), "r"(pair));
    }
    return r;
}

__device__ __forceinline__ u32 load_4(const u8* p) {
    u32 v;
    asm volatile("ld.global.b32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}

__device__ __forceinline__ uint2 load_8(const u8* p) {
    uint2 v;
    asm volatile("ld.global.v2.b32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}

// Loads a slot of a list that the previous kernel may still write. The value is not kept in L1.
__device__ __forceinline__ i32 load_early(const i32* p) {
    i32 v;
    asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}

// Converts 16 e2m1 codes, which have one scale, and stores them to chunks Chunk and Chunk + 1.
template <u32 Chunk, bool Upper>
__device__ __forceinline__ void store_words(u32 at, u32 scales, u32 first, u32 second) {
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
        const u32 word = i == 0 ? first : second;
        const u32 even = (word << 4 & 0x80808080u) | (word << 1 & 0x0E0E0E0Eu);  // codes 0, 2, 4 and 6
        const u32 odd = (word & 0x80808080u) | (word >> 3 & 0x0E0E0E0Eu);        // codes 1, 3, 5 and 7
        store_16(at ^ ((Chunk + i) << 4), times_half<Upper>(__byte_perm(even, 0, 0x2404), scales),
            times_half<Upper>(__byte_perm(odd, 0, 0x2404), scales), times_half<Upper>(even & 0xFF00FF00u, scales),
            times_half<Upper>(odd & 0xFF00FF00u, scales));
    }
}

// Converts 64 codes of an entry to half precision, divided by 2^kShift, and stores them. `at` is the address of chunk
// 0 of the row in the tile; the address of chunk c is at ^ c * 16. scales are those of the four groups of codes.
__device__ __forceinline__ void store_entry(u32 at, u32 scales, const uint4& left, const uint4& right) {
    constexpr u32 kScale = 0x58005800u;  // 2^(14 - kShift) twice
    const u32 low = times(widen(scales), kScale), high = times(widen(scales >> 16), kScale);
    store_words<0, false>(at, low, left.x, left.y);
    store_words<2, true>(at, low, left.z, left.w);
    store_words<4, false>(at, high, right.x, right.y);
    store_words<6, true>(at, high, right.z, right.w);
}

// Converts 32 codes of a row of the window to half precision and stores them to four chunks. exponent is a byte.
__device__ __forceinline__ void store_window(u32 at, u32 exponent, const uint4& left, const uint4& right) {
    const u32 scale = half_scale(__uint_as_float(exponent == 0 ? 0x00400000u : exponent << 23));
    const u32 words[8] = {left.x, left.y, left.z, left.w, right.x, right.y, right.z, right.w};
#pragma unroll
    for (u32 i = 0; i < 8; i += 2) {
        const u32 low = __byte_perm(words[i], words[i + 1], 0x5140), high = __byte_perm(words[i], words[i + 1], 0x7362);
        store_16(at ^ (i / 2 << 4), times(widen(low), scale), times(widen(low >> 16), scale),
            times(widen(high), scale), times(widen(high >> 16), scale));
    }
}

// Prefetches half of the lines of a row into L2.
__device__ __forceinline__ void prefetch_row(const SelectionView& s, i32 slot, u32 half) {
    constexpr u32 kLine = 128;
    if (slot < 0 || slot >= s.slots) {
        return;
    }
    const u8* page = page_of(s, slot);
    if (SharedFormat::is_entry(s)) {
        prefetch_lines<SharedFormat::kSecondBytes, kLine>(page + (slot & s.page_mask) * SharedFormat::kSecondBytes,
            half);
    } else {
        prefetch_lines<SharedFormat::kRowBytes, kLine>(page + (slot & s.page_mask) * SharedFormat::kRowBytes, half);
    }
}

// Prefetches into L2 what the first unit of a thread block, or of Parts thread blocks, needs: the score group its
// queries, the value group the rows of the first two key blocks, if they belong to the first stream, and the fetching
// threads lists and lengths. `block` is the first key block of the unit. The function is called before the previous
// kernel has ended, which may still write any of these bytes. Therefore values are not used, except that slots select
// the rows to prefetch.
template <u32 Parts>
__device__ __forceinline__ void prefetch_first(const SparseAttendArgs& args, i32 row, i32 head, i32 block, u32 part) {
    constexpr i32 kLine = 128, kQueryBytes = SharedFormat::Tiles * 128, kEntries = kLine / 4;
    const i32 t = static_cast<i32>(threadIdx.x % 128);
    if (threadIdx.x < 128) {
        const u8* q = reinterpret_cast<const u8*>(args.q + row * args.q_stride) + static_cast<i64>(head) * kQueryBytes;
        const i32 bytes = min(args.heads - head, kHeads) * kQueryBytes;
        for (i32 at = (t * static_cast<i32>(Parts) + static_cast<i32>(part)) * kLine; at < bytes;
             at += 128 * static_cast<i32>(Parts) * kLine) {
            ptx::prefetch_line(q + at);
        }
    } else if (threadIdx.x < 256) {
        constexpr i32 kBlocks = 2 / Parts;
        const SelectionView& s = args.streams[0];
        i32 slots[kBlocks];
#pragma unroll
        for (i32 i = 0; i < kBlocks; ++i) {
            const i32 position = (block + static_cast<i32>(part) + i) * kKeys + t / 2;
            slots[i] = position < s.width ? load_early(s.indices + row * s.index_stride + position) : -1;
        }
#pragma unroll
        for (i32 i = 0; i < kBlocks; ++i) {
            prefetch_row(s, slots[i], t % 2);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const SelectionView& s = args.streams[i];
            if (s.width != 0) {
                const i32 fetchers = static_cast<i32>(blockDim.x) - 256, from = static_cast<i32>(threadIdx.x) - 256;
                for (i32 at = from * kEntries; at < s.width; at += fetchers * kEntries) {
                    ptx::prefetch_line(s.indices + row * s.index_stride + at);
                }
                if (from == 0) {
                    ptx::prefetch_line(s.lens + row * s.len_stride);
                }
            }
        }
    }
}

}  // namespace sparrow_sparse
