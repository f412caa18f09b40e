// A block's part of a row that is distributed over a cluster, and the data that the blocks exchange about their parts
// (spread.cuh).
#pragma once

#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "sm90/topk/interval.cuh"

namespace sparrow_topk {

constexpr int kSlice = 1024;       // positions of the row that one warp processes
constexpr int kSpreadBlocks = 8;   // maximum number of blocks in a cluster
constexpr int kFine = 512;         // number of bins inside the interval
constexpr int kSampleQuads = 2;    // sample quads per thread
constexpr u32 kMostInside = 8192;  // maximum expected number of scores inside the interval
constexpr int kShort = 32;         // maximum number of entries in the list, one per lane

struct SpreadShape {
    static constexpr int Threads = 512;
    static constexpr int Warps = Threads / 32;
    static constexpr int Bins = 4 * Threads;  // bins of the sample
    static constexpr int BinBits = 9;         // log2 of kFine
};

// The data that a block sends to the other blocks of its cluster.
struct alignas(16) Told {
    u32 bins[kFine];
    u32 counts[SpreadShape::Warps];  // per warp: scores above the interval in bits 0-15, scores inside in bits 16-31
};

// A bin whose counts are summed over the cluster.
struct SpreadBin {
    u32 bin, above, inside;
    u32 first, own;  // scores of the bin in blocks before this one, and in this one
};

// The smallest key, the largest key, and the number of keys.
struct Extent {
    u32 low, high, count;
};

struct SpreadStorage {
    using Shape = SpreadShape;

    float scores[Shape::Warps][kSlice];
    u32 bins[Shape::Bins];
    Told told[kSpreadBlocks];                     // data of each block; a block counts in its own entry
    u64 list[kShort];                             // candidates of all blocks; equal in each block
    u32 won[kSpreadBlocks * Shape::Warps];  // number of winners of every warp of the cluster before the list is cut
    Extent extents[kSpreadBlocks * Shape::Warps];
    u64 arrived[Shape::Warps];                    // mbarriers: the scores of the warp have arrived
    u64 heard;                                    // mbarrier: `told` of the other blocks has arrived
    u64 complete;                                 // mbarrier: `won` and `list` of the other blocks have arrived
    u32 bin_sums[Shape::Warps];
    u32 listed;                                   // number of candidates of this block
    BinRank guess[2];
    SpreadBin found;
};

struct SpreadPart {
    using S = SpreadShape;

    const TopKArgs& args;
    SpreadStorage& shared;
    const Place at;
    const u32 blocks, rank;   // blocks of the cluster, and rank of this block in it
    Row w;
    u32 slice = 0;            // slice of the row that this warp has
    u32 won = 0, inside = 0;  // bits of this thread's positions that have won, and that are undecided
    u32 above = 0;            // number of winners of the whole row that are known
    u32 heard_parity = 0;

    __device__ __forceinline__ SpreadPart(const TopKArgs& a, SpreadStorage& s)
        : args(a), shared(s), at{threadIdx.x, threadIdx.x % 32, threadIdx.x / 32}, blocks(ptx::cluster_blocks()),
            rank(ptx::cluster_rank()) {}

    __device__ __forceinline__ static void sync() { ptx::threads_sync<S::Threads>(); }

    // Returns the number of this warp in the cluster.
    __device__ __forceinline__ u32 cluster_warp() const { return rank * S::Warps + at.warp; }

    // The 32 positions of this thread are word `word()` of the row.
    __device__ __forceinline__ u32 word() const { return slice * (kSlice / 32) + at.lane; }
    __device__ __forceinline__ float* own_scores() const { return shared.scores[at.warp] + at.lane * 32; }

    // Calls each(bit, score) for the positions inside the interval.
    template <class Each>
    __device__ __forceinline__ void each_inside(const Each& each) {
        const float* scores = own_scores();
#pragma unroll 1
        for (u32 left = inside; left; left &= left - 1) {
            each(left & (0u - left), scores[__ffs(left) - 1]);
        }
    }

    // Sends this block's bins and counts to the other blocks and waits for theirs. It uses two barriers.
    __device__ __forceinline__ void tell() {
        sync();
        const u32 heard = ptx::shared_address(&shared.heard);
        if (at.thread == 0) {
            ptx::barrier_expect(heard, (blocks - 1) * sizeof(Told));
        }
        if (at.thread < sizeof(Told) / 16) {
            const uint4* own = reinterpret_cast<const uint4*>(&shared.told[rank]) + at.thread;
            const uint4 v = *own;
#pragma unroll 1
            for (u32 d = 1; d < blocks; ++d) {
                const u32 peer = rank + d < blocks ? rank + d : rank + d - blocks;
                ptx::peer_send(ptx::peer_address(ptx::shared_address(own), peer), v, ptx::peer_address(heard, peer));
            }
        }
        ptx::barrier_wait(heard, heard_parity);
        heard_parity ^= 1;
    }

    // Counts the scores above the interval and inside it, over the first `warps` warps of the cluster.
    __device__ __forceinline__ void counts(u32 warps, u32& over, u32& within) const {
        over = within = 0;
#pragma unroll 1
        for (u32 i = at.lane; i < warps; i += 32) {
            const u32 c = shared.told[i / S::Warps].counts[i % S::Warps];
            over += c & 0xFFFF;
            within += c >> 16;
        }
        over = ptx::warp_sum(over);
        within = ptx::warp_sum(within);
    }

    // Returns the bin of rank `wanted` over all blocks, which hold at least that many scores. It uses two barriers.
    __device__ __forceinline__ SpreadBin find(u32 wanted) {
        const u32 bin = kFine - 1 - at.thread;  // threads in descending order of bins
        u32 sum = 0, first = 0, own = 0;
#pragma unroll 1
        for (u32 b = 0; b < blocks; ++b) {
            const u32 count = shared.told[b].bins[bin];
            first += b < rank ? count : 0;
            own = b == rank ? count : own;
            sum += count;
        }
        const u32 total = ptx::warp_sum(sum);
        if (at.lane == 0) {
            shared.bin_sums[at.warp] = total;
        }
        sync();
        u32 before = ptx::warp_sum(at.lane < at.warp ? shared.bin_sums[at.lane] : 0);
        if (before < wanted && wanted <= before + total) {  // the condition is equal in all lanes
            before += ptx::warp_prefix(sum, at.lane) - sum;
            if (before < wanted && wanted <= before + sum) {
                shared.found = SpreadBin{bin, before, sum, first, own};
            }
        }
        sync();
        return shared.found;
    }
};

}  // namespace sparrow_topk
