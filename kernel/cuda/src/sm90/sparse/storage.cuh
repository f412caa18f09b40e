// Shared memory of a block of sparse attention, and the computation of its units of work.
#pragma once

#include "ptx/async.cuh"
#include "ptx/barrier.cuh"
#include "ptx/warp.cuh"
#include "sm90/sparse/config.h"

namespace sparrow_sparse {

// The weights of a block, 16 bits [64 heads][64 keys]. With nine tiles they are stored in the rotary tile, which is
// not needed once the scores are complete.
template <int Tiles>
struct WeightTiles {
    u8 tile[2][kTileBytes];
};
template <>
struct WeightTiles<9> {};

// Barriers. The fetching threads arrive at q_full and, for each part of a key buffer, at k_full. The score group
// arrives at q_empty after the last scores of the queries, and at k_empty[b][0] after its product. The value group
// arrives at k_empty[b][1], which also frees the weights, and at final_empty. Phases count the key blocks of a buffer
// (k, scores, weights), queries (q), and every second unit with keys (final).
template <int Tiles>
struct Storage {
    u8 q[Tiles * kTileBytes];
    u8 k[2][Tiles * kTileBytes];
    WeightTiles<Tiles> weights;
    float factor[2][kHeads];  // [buffers][heads] factor by which a block rescales the output
    float final[2][kHeads];   // [buffers][heads] final factor of a unit's output
    u64 valid[2];             // bit t: key t of the block is valid
    u64 q_full, q_empty;
    u64 k_full[2][kParts], k_empty[2][kParts];
    // The value group arrives here when it has multiplied the first, second and third quarter of a block's keys, before
    // k_empty completes for all keys (used with Rows::kQuarters).
    u64 quarter_empty[2][3];
    u64 scores_done[2];
    u64 weights_full[2];
    u64 final_full[2], final_empty[2];

    __device__ __forceinline__ u32 weights_at(u32 b) {
        if constexpr (Tiles == 9) {
            return ptx::shared_address(k[b]) + 8 * kTileBytes;
        } else {
            return ptx::shared_address(weights.tile[b]);
        }
    }
};

// Returns the dynamic shared memory of a launch, in bytes.
template <class Shared>
constexpr u32 shared_bytes() {
    return sizeof(Shared) + 1024;  // 1024 bytes of padding, to align Shared to a swizzle atom
}

template <class Shared>
__device__ __forceinline__ Shared& shared_memory() {
    static_assert(shared_bytes<Shared>() <= 232448, "more shared memory than a Hopper block can have");
    extern __shared__ u8 dynamic_shared[];
    const u32 misaligned = ptx::shared_address(dynamic_shared) % 1024;
    return *reinterpret_cast<Shared*>(dynamic_shared + (misaligned ? 1024 - misaligned : 0));
}

// Initialises the barriers; one thread calls it before __syncthreads. k_full has one arrival per fetching thread.
template <int Tiles>
__device__ __forceinline__ void init_barriers(Storage<Tiles>& shared, u32 fetchers) {
    constexpr u32 kWarps = 4, kGroup = 128;
    ptx::barrier_init(ptx::shared_address(&shared.q_full), kFetchers);
    ptx::barrier_init(ptx::shared_address(&shared.q_empty), kWarps);
    for (int b = 0; b < 2; ++b) {
        for (int part = 0; part < kParts; ++part) {
            ptx::barrier_init(ptx::shared_address(&shared.k_full[b][part]), fetchers);
            ptx::barrier_init(ptx::shared_address(&shared.k_empty[b][part]), part + 1 < kParts ? kWarps : kGroup);
        }
        for (int i = 0; i < 3; ++i) {
            ptx::barrier_init(ptx::shared_address(&shared.quarter_empty[b][i]), kWarps);
        }
        ptx::barrier_init(ptx::shared_address(&shared.scores_done[b]), kWarps);
        ptx::barrier_init(ptx::shared_address(&shared.weights_full[b]), kGroup);
        ptx::barrier_init(ptx::shared_address(&shared.final_full[b]), kGroup);
        ptx::barrier_init(ptx::shared_address(&shared.final_empty[b]), kGroup);
    }
    ptx::barrier_init_fence();
}

// One unit: heads [head, head + 64) of a row over the row's blocks [block, block + blocks).
struct Unit {
    i32 row, head, segment;
    i32 block, blocks;
    i32 first_blocks;  // blocks of the first stream
    i32 first_len, second_len;
    bool fresh;  // the unit needs other queries than the previous unit of the thread block
    bool last;   // the next unit of the thread block needs other queries
};

__device__ __forceinline__ u32 head_groups(const SparseAttendArgs& args) {
    return (static_cast<u32>(args.heads) + kHeads - 1) / kHeads;
}

// Returns the number of blocks of 64 keys in each segment of a row with the given number of blocks. With kEvery, the
// segments of a row have about equal lengths, to balance the units: a row of n blocks has n / segment_blocks segments,
// rounded up. The ends of segments depend only on the length of the row.
__device__ __forceinline__ i32 segment_blocks(const SparseAttendArgs& args, i32 blocks) {
    if constexpr (kEvery) {
        const i32 segments = max((blocks + args.segment_blocks - 1) / args.segment_blocks, 1);
        return (blocks + segments - 1) / segments;
    }
    return args.segment_blocks;
}

// The units of a thread block if rows attend to every key and are cut into segments. Sequences differ in length, so
// most of the possible units have no keys and are not listed.
struct UnitList {
    static constexpr u32 kMost = 32;
    u32 count;
    u32 number[kMost];
};

__device__ __forceinline__ UnitList& unit_list() {
    __shared__ UnitList list;
    return list;
}

__device__ __forceinline__ bool listed(const SparseAttendArgs& args) { return kEvery && args.segments > 1; }

// Returns the number, among all units of the launch, of the u-th unit of this thread block.
__device__ __forceinline__ u32 number_of(const SparseAttendArgs& args, u32 u) {
    if constexpr (kEvery) {
        if (listed(args)) {
            return *const_cast<volatile u32*>(&unit_list().number[u]);
        }
    }
    return u;
}

// Returns the number of units of a launch, which is below 2^31.
__device__ __forceinline__ u32 unit_count(const SparseAttendArgs& args) {
    return static_cast<u32>(args.rows) * static_cast<u32>(args.segments) * head_groups(args);
}

// The units of this thread block. With one segment per row, units are distributed round robin, so that the head groups
// of a row run at the same time and its keys are read from L2. With several segments, a block has consecutive units:
// segments of the same heads, which load their queries only once.
struct Share {
    u32 first, end, step;

    __device__ __forceinline__ Share(const SparseAttendArgs& args) {
        if constexpr (kEvery) {
            if (listed(args)) {
                first = 0;
                end = *const_cast<volatile u32*>(&unit_list().count);
                step = 1;
                return;
            }
        }
        const u32 count = unit_count(args), each = count / gridDim.x, more = count % gridDim.x;
        const bool turns = args.segments == 1;
        first = turns ? blockIdx.x : blockIdx.x * each + min(blockIdx.x, more);
        end = turns ? count : first + each + (blockIdx.x < more ? 1 : 0);
        step = turns ? gridDim.x : 1;
    }
};

// Returns the row of a unit.
__device__ __forceinline__ i32 row_at(const SparseAttendArgs& args, u32 number) {
    return static_cast<i32>(number / static_cast<u32>(args.segments) / head_groups(args));
}

// Returns the first head of a unit.
__device__ __forceinline__ i32 head_at(const SparseAttendArgs& args, u32 number) {
    return static_cast<i32>(number / static_cast<u32>(args.segments) % head_groups(args)) * kHeads;
}

__device__ __forceinline__ i32 row_of(const SparseAttendArgs& args, u32 u) {
    return row_at(args, number_of(args, u));
}

__device__ __forceinline__ i32 head_of(const SparseAttendArgs& args, u32 u) {
    return head_at(args, number_of(args, u));
}

__device__ __forceinline__ u32 segment_of(const SparseAttendArgs& args, u32 u) {
    return number_of(args, u) % static_cast<u32>(args.segments);
}

// Returns the number of the list that a row uses.
__device__ __forceinline__ i32 list_row(const SparseAttendArgs& args, i32 row) {
    return kEvery ? args.streams[1].lens[row * args.streams[1].len_stride] : row;
}

// Returns the list of a row: the slots of its keys, or the pages of its sequence.
__device__ __forceinline__ const i32* list_of(const SparseAttendArgs& args, const SelectionView& s, i32 row) {
    return s.indices + list_row(args, row) * s.index_stride;
}

// Returns the index in a row's list of the key at a position.
__device__ __forceinline__ i32 entry_of(i32 position) { return kEvery ? position / kKeys : position; }

// The number of list entries between consecutive blocks.
constexpr i32 kEntries = kEvery ? 1 : kKeys;

// Returns the slot of key `key` of a block from its list entry; negative: no row.
__device__ __forceinline__ i32 slot_of(i32 entry, i32 key) {
    return !kEvery || entry < 0 ? entry : entry * kKeys + key;
}

// The numbers of keys of the row of a unit, loaded ahead of their use.
struct Lengths {
    i32 first = 0, second = 0;

    __device__ __forceinline__ Lengths(const SparseAttendArgs& args, const Share& share, u32 u) {
        if (u < share.end) {
            const i32 row = row_of(args, u);
            first = args.streams[0].lens[row * args.streams[0].len_stride];
            second = args.streams[1].width == 0 ? 0 : args.streams[1].lens[row * args.streams[1].len_stride];
        }
    }
};

__device__ __forceinline__ i32 clipped(const SelectionView& s, i32 length) { return max(min(length, s.width), 0); }

// Returns the number of blocks of all keys of a row.
__device__ __forceinline__ i32 row_blocks(const SparseAttendArgs& args, i32 row) {
    i32 blocks = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const SelectionView& s = args.streams[i];
        if (s.width != 0) {
            blocks += (clipped(s, s.lens[row * s.len_stride]) + kKeys - 1) / kKeys;
        }
    }
    return blocks;
}

// Lists the units with keys that this thread block takes: its share of the units of all rows, in order. All threads of
// the block must call it before any other function of units. A launch has at most kMost * (number of thread blocks)
// units. groups is the number of head groups of a row.
__device__ __forceinline__ void list_units(const SparseAttendArgs& args, u32 groups) {
    if (!listed(args)) {
        return;
    }
    UnitList& list = unit_list();
    const u32 rows = static_cast<u32>(args.rows), warps = blockDim.x / 32;
    const u32 mine = (rows + blockDim.x - 1) / blockDim.x, from = min(threadIdx.x * mine, rows),
        to = min(from + mine, rows);
    const auto units = [&](u32 row) {
        const u32 blocks = static_cast<u32>(row_blocks(args, static_cast<i32>(row))), n = args.segment_blocks;
        return (blocks + n - 1) / n * groups;
    };
    u32 own = 0;
    for (u32 row = from; row < to; ++row) {
        own += units(row);
    }
    u32 at = own;  // units of the rows of this thread and of all lower threads
#pragma unroll
    for (u32 d = 1; d < 32; d *= 2) {
        const u32 n = __shfl_up_sync(ptx::kFullMask, at, d);
        at += threadIdx.x % 32 >= d ? n : 0;
    }
    if (threadIdx.x % 32 == 31) {
        list.number[threadIdx.x / 32] = at;
    }
    __syncthreads();
    u32 all = 0;
    at -= own;
    for (u32 w = 0; w < warps; ++w) {
        const u32 n = *const_cast<volatile u32*>(&list.number[w]);
        at += w < threadIdx.x / 32 ? n : 0;
        all += n;
    }
    __syncthreads();
    const u32 each = all / gridDim.x, more = all % gridDim.x;
    const u32 begin = blockIdx.x * each + min(blockIdx.x, more), end = begin + each + (blockIdx.x < more ? 1 : 0);
    if (threadIdx.x == 0) {
        list.count = end - begin;
    }
    for (u32 row = from; row < to && at < end; ++row) {
        const u32 n = units(row), segments = n / groups;
        for (u32 u = max(at, begin); u < min(at + n, end); ++u) {
            list.number[u - begin] = (row * groups + (u - at) / segments) * args.segments + (u - at) % segments;
        }
        at += n;
    }
    __syncthreads();
}

// Returns unit u. Segments of a head group come first, then the next head group of the row, then the next row.
__device__ __forceinline__ Unit unit_of(const SparseAttendArgs& args, const Share& share, u32 u,
    const Lengths& lengths) {
    const u32 number = number_of(args, u), rest = number / static_cast<u32>(args.segments);
    Unit r;
    r.row = row_at(args, number);
    r.segment = static_cast<i32>(number - rest * args.segments);
    r.head = static_cast<i32>(rest - r.row * head_groups(args)) * kHeads;
    r.first_len = clipped(args.streams[0], lengths.first);
    r.second_len = clipped(args.streams[1], lengths.second);
    r.first_blocks = (r.first_len + kKeys - 1) / kKeys;
    const i32 all = r.first_blocks + (r.second_len + kKeys - 1) / kKeys;
    const i32 each = segment_blocks(args, all);
    r.block = r.segment * each;
    r.blocks = max(min(all - r.block, each), 0);
    r.fresh = r.segment == 0 || u == share.first;
    r.last = r.block + r.blocks >= all || r.segment + 1 == args.segments || u + 1 == share.end;
    return r;
}

__device__ __forceinline__ Unit unit_at(const SparseAttendArgs& args, const Share& share, u32 u) {
    return unit_of(args, share, u, Lengths(args, share, u));
}

// The position of a block of 64 keys.
struct BlockPlace {
    i32 stream;            // index of the stream to whose selection the block belongs
    i32 position, length;  // index of the block's first key in the selection, and the selection's length in keys
};

__device__ __forceinline__ BlockPlace place_of(const Unit& u, i32 block) {
    const i32 b = u.block + block;
    const bool second = b >= u.first_blocks;
    return {second ? 1 : 0, (second ? b - u.first_blocks : b) * kKeys, second ? u.second_len : u.first_len};
}

__device__ __forceinline__ const u8* page_of(const SelectionView& s, i32 slot) {
    return s.base + static_cast<i64>(static_cast<u32>(slot) >> s.page_shift) * s.page_bytes;
}

// Reads a word of shared memory that other threads write; the read is not cached in a register.
template <class Word>
__device__ __forceinline__ Word read(const Word& word) {
    return *const_cast<const volatile Word*>(&word);
}

// Returns the byte offset of 16-byte chunk c of row r inside a tile.
__device__ __forceinline__ u32 tile_byte(u32 r, u32 c) {
    return r * 128 + ((c ^ (r & 7)) << 4);
}

}  // namespace sparrow_sparse
