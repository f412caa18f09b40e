// Sizes of the top-k kernel for a block of Threads threads. 256 threads, three blocks per SM, when there are more rows than SMs: one row
// streams while others are being cut. 1024 threads otherwise: a row of 32k scores is loaded at once.
#pragma once

#include "ptx/types.h"

namespace sparrow_topk {

constexpr int kMaxK = 2048;
constexpr int kSelectors = 256;                // threads that estimate, cut and write; all threads read scores
constexpr int kSelectorWarps = kSelectors / 32;
constexpr int kList = 4096;                    // capacity of the candidate list
constexpr int kWindow = kList - kMaxK;         // scores that always fit beside k candidates
constexpr int kListSteps = kList / kSelectors;
constexpr int kLaneQuads = 8;                  // float4 loads of one lane per chunk
constexpr int kChunk = 128 * kLaneQuads;       // scores that a warp takes at a time
constexpr int kBinBits = 10;
constexpr int kBins = 1 << kBinBits;
constexpr int kSmallBin = 32;                  // a bin of at most this many candidates is ranked by one warp
constexpr int kSegment = 32768;                // positions that are put in order at a time
constexpr int kSampleQuads = 2;                // float4 loads of one selector per round of the sample
constexpr int kSampleScores = 4 * kSampleQuads * kSelectors;
constexpr int kTries = 6;                      // passes over a row before the windows

static_assert(kWindow % kChunk == 0, "windows are whole chunks");
static_assert(kBins == 4 * kSelectors && kSegment / 32 == 4 * kSelectors, "selectors own four bins and four bitmap words each");

template <int ThreadCount>
struct Shape {
    static constexpr int Threads = ThreadCount;
    static constexpr int Warps = Threads / 32;

    static_assert(Threads % kSelectors == 0, "selectors are the first warps of the block");
};

}  // namespace sparrow_topk
