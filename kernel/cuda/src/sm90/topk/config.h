// Sizes that the top-k kernels share, and the sizes of the streaming kernels. For many rows, blocks have 256 threads
// and three run per SM, so that scores of one row are loaded while the candidate lists of other rows are being cut. For
// few rows, blocks have 512 threads, one per SM.
#pragma once

#include "ptx/types.h"

namespace sparrow_topk {

constexpr int kMaxK = 2048;
constexpr int kList = 3840;                    // capacity of the candidate list
constexpr int kWindow = 1024;                  // scores that always fit in the list in addition to k candidates
constexpr int kLaneQuads = 8;                  // float4 loads of one lane per chunk
constexpr int kStagedQuads = 4;                // quads of a chunk that are in shared memory at a time
constexpr int kChunk = 128 * kLaneQuads;       // scores that a warp processes at a time
constexpr int kSmallBin = 32;                  // maximum candidates of a bin that one warp ranks
constexpr int kSegment = 32768;                // positions that are written in order at a time
constexpr int kSegmentWords = kSegment / 32;
constexpr int kSampleLog2 = 11;                // log2 of the scores of one round of the sample
constexpr u32 kOctaves = 16u << 23;            // keys of sixteen binary orders of magnitude
constexpr int kTries = 6;                      // maximum passes over a row before it is read in windows

static_assert(kWindow % kChunk == 0 && kMaxK + kWindow <= kList, "windows are whole chunks that fit");

template <int ThreadCount>
struct Shape {
    static constexpr int Threads = ThreadCount;
    static constexpr int Warps = Threads / 32;
    static constexpr int Bins = 4 * Threads;                                    // one 16-byte load per thread
    static constexpr int BinBits = Threads == 256 ? 10 : 11;
    static constexpr int ListSteps = (kList + Threads - 1) / Threads;           // list entries per thread
    static constexpr int Words = kSegmentWords / Threads;                       // bitmap words per thread
    static constexpr int SampleQuads = (1 << kSampleLog2) / 4 / Threads;

    static_assert(Threads == 256 || Threads == 512, "threads own two or four words of the bitmap");
    static_assert(Bins == 1 << BinBits && Bins >= kSegmentWords, "sizes divide");
};

}  // namespace sparrow_topk
