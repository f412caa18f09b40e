// Sizes of the top-k kernel for a block of Threads threads: 512 with two blocks per SM when there are more rows than SMs,
// so that one row streams while another is being cut; 1024 otherwise.
#pragma once

#include "ptx/types.h"

namespace sparrow_topk {

constexpr int kMaxK = 2048;
constexpr int kList = 4096;                    // capacity of the candidate list
constexpr int kWindow = kList - kMaxK;         // scores that always fit beside k candidates
constexpr int kLaneQuads = 8;                  // float4 loads of one lane per chunk
constexpr int kChunk = 128 * kLaneQuads;       // scores that a warp takes at a time
constexpr int kSmallBin = 32;                  // a bin of at most this many candidates is ranked by one warp
constexpr int kSegment = 32768;                // positions that are put in order at a time
constexpr int kSparseSample = 49152;           // rows up to this length are sampled thinly
constexpr int kTries = 6;                      // passes over a row before the windows

static_assert(kWindow % kChunk == 0, "windows are whole chunks");

template <int ThreadCount>
struct Shape {
    static constexpr int Threads = ThreadCount;
    static constexpr int Warps = Threads / 32;
    static constexpr int Bins = 4 * Threads;             // one 16-byte load per thread
    static constexpr int BinBits = Threads == 512 ? 11 : 12;
    static constexpr int ListSteps = kList / Threads;    // list entries per thread
    static constexpr int Words = kSegment / 32 / Threads;  // bitmap words per thread

    static_assert(Threads == 512 || Threads == 1024, "512 or 1024 threads");
    static_assert(Bins == 1 << BinBits && kList % Threads == 0, "sizes divide");
};

}  // namespace sparrow_topk
