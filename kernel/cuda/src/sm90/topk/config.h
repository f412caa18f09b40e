// Sizes of the top-k kernel. All threads of a block read scores; the selectors among them, its first warps, estimate, cut and write.
// 256 threads, four blocks per SM, when there are more rows than SMs: one row streams while others are being cut. 1024 threads, 512 of
// them selectors, otherwise: a row of 32k scores is loaded at once.
#pragma once

#include "ptx/types.h"

namespace sparrow_topk {

constexpr int kMaxK = 2048;
constexpr int kList = 3840;                    // capacity of the candidate list: four blocks of 256 threads fill the SM's memory
constexpr int kWindow = 1024;                  // scores that always fit beside k candidates
constexpr int kLaneQuads = 8;                  // float4 loads of one lane per chunk
constexpr int kStagedQuads = 4;                // of them in shared memory at a time
constexpr int kChunk = 128 * kLaneQuads;       // scores that a warp takes at a time
constexpr int kSmallBin = 32;                  // a bin of at most this many candidates is ranked by one warp
constexpr int kSegment = 32768;                // positions that are put in order at a time
constexpr int kSegmentWords = kSegment / 32;
constexpr int kSampleLog2 = 11;                // scores of one round of the sample
constexpr u32 kOctaves = 16u << 23;            // keys of sixteen binary orders of magnitude
constexpr int kTries = 6;                      // passes over a row before the windows

static_assert(kWindow % kChunk == 0 && kMaxK + kWindow <= kList, "windows are whole chunks that fit");

template <int ThreadCount, int SelectorCount>
struct Shape {
    static constexpr int Threads = ThreadCount;
    static constexpr int Warps = Threads / 32;
    static constexpr int Selectors = SelectorCount;
    static constexpr int SelectorWarps = Selectors / 32;
    static constexpr int Bins = 4 * Selectors;                 // one 16-byte load each
    static constexpr int BinBits = Selectors == 256 ? 10 : 11;
    static constexpr int ListSteps = (kList + Selectors - 1) / Selectors;       // list entries per selector
    static constexpr int Words = kSegmentWords / Selectors;    // bitmap words per selector
    static constexpr int SampleQuads = (1 << kSampleLog2) / 4 / Selectors;

    static_assert(Selectors == 256 || Selectors == 512, "selectors own two or four words of the bitmap");
    static_assert(Threads % Selectors == 0 && Bins == 1 << BinBits && Bins >= kSegmentWords, "sizes divide");
};

}  // namespace sparrow_topk
