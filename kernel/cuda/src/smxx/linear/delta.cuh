// The gated delta rule in its recurrent form. Every head of every sequence has a state [128 keys, 128 values], which
// each row updates.
//
//     S' = diag(exp(g)) S;  u = beta (v - S'^T k);  S = S' + k (x) u;  out = S^T q = S'^T q + (k . q) u
//
// In:    bf16 q, k, v after the convolution, float32 gates before their sigmoid; states in slots.
// Block: 64 columns of one head and sequence; eight warps with eight columns each. A lane keeps four columns of eight
//        keys in registers, 32 values, from the first row to the last. The state is therefore read once and written
//        once, in whole sectors. The sums for S'^T k and S'^T q over the 16 lanes of a column are computed together.
//        Rows are processed eight at a time: each warp prepares one row (norms, decays) in shared memory while the
//        previous eight rows are computed.
// Bits:  the bits of a row depend neither on the division of its sequence into passes nor on other sequences.
// Bytes: 64 KiB of state read and written for each head and sequence.
#pragma once
#include "smxx/linear/sequences.cuh"

constexpr i32 kDelta = 128;       // keys per head, and values per head
constexpr i32 kDeltaColumns = 64; // value columns per block
constexpr i32 kDeltaTile = 8;     // rows that are prepared together

struct DeltaTile {
    f32 k[kDeltaTile][kDelta], q[kDeltaTile][kDelta], decay[kDeltaTile][kDelta];
    f32 v[kDeltaTile][kDeltaColumns];
    f32 beta[kDeltaTile], kq[kDeltaTile];
    i32 row[kDeltaTile], snapshot[kDeltaTile]; // row of the pass, and snapshot slot, of each row of the tile; -1: none

    // Reports whether the tile has no snapshots, so that no state is stored before its end.
    DEVICE bool whole() const {
        bool none = true;
#pragma unroll
        for (int i = 0; i + 1 < kDeltaTile; i++) none = none && snapshot[i] < 0;
        return none;
    }
};

// Outputs of a tile before they are written: 64 columns, and 64 columns for lanes without an output, which are not
// read.
struct DeltaOut {
    u16 value[kDeltaTile][2 * kDeltaColumns];
    i32 row[kDeltaTile]; // row of the pass; -1: no row, or already written
};

// The values that a lane loads from a row before it prepares the row.
struct RawDelta {
    float4 q, k, gate;
    f32 v[2], beta;
    i32 row, snapshot;
};

DEVICE f32 sum_32(f32 v) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) v = __fadd_rn(v, __shfl_xor_sync(ptx::kFullMask, v, d));
    return v;
}
DEVICE f32 dot_4(float4 a, float4 b) {
    return __fmaf_rn(a.w, b.w, __fmaf_rn(a.z, b.z, __fmaf_rn(a.y, b.y, __fmul_rn(a.x, b.x))));
}
DEVICE float4 times_4(float4 a, f32 s) {
    return make_float4(__fmul_rn(a.x, s), __fmul_rn(a.y, s), __fmul_rn(a.z, s), __fmul_rn(a.w, s));
}
// Returns 1 / (1 + exp(-x)) with approximate hardware instructions, like the other computations that prepare a row,
// because other warps wait for prepared rows.
DEVICE f32 sigmoid(f32 x) { return __fdividef(1.0f, __fadd_rn(1.0f, __expf(-x))); }

struct DeltaHead {
    const DeltaArgs& a;
    Span s;
    i32 head, first; // first: first column of the block
    float4 bias;     // biases of the lane's four channels
    f32 speed;

    // Loads entry i of the rows of a sequence; entries 0 to held - 1 are held-back rows.
    DEVICE RawDelta load(i32 i) const {
        const i32 lane = lane_id();
        RawDelta x{};
        x.row = x.snapshot = -1;
        if (i >= s.held + s.rows) return x;
        const i64 at = static_cast<i64>(head) * kDelta;
        if (i < s.held) {
            const i64 width = static_cast<i64>(a.heads) * kDelta;
            const f32* held = a.held + (static_cast<i64>(s.slot) * a.of.held + i) * (3 * width + a.heads);
#pragma unroll
            for (int j = 0; j < 4; j++) { // a held-back row may be aligned to only four bytes
                (&x.k.x)[j] = held[at + 4 * lane + j];
                (&x.gate.x)[j] = held[2 * width + at + 4 * lane + j];
            }
            x.v[0] = held[width + at + first + 2 * lane];
            x.v[1] = held[width + at + first + 2 * lane + 1];
            x.beta = held[3 * width + head];
            return x;
        }
        x.row = row_at(a.of, s, i - s.held);
        if (x.row < 0) return x;
        x.snapshot = snapshot_at(a.of, x.row);
        x.q = load_bf16x4(a.q + x.row * a.q_stride + at + 4 * lane);
        x.k = load_bf16x4(a.k + x.row * a.k_stride + at + 4 * lane);
        x.gate = *reinterpret_cast<const float4*>(a.gate + x.row * a.gate_stride + at + 4 * lane);
        const u32 v = *reinterpret_cast<const u32*>(a.v + x.row * a.v_stride + at + first + 2 * lane);
        x.v[0] = bf16_low(v), x.v[1] = bf16_high(v);
        x.beta = a.beta[x.row * a.beta_stride + head];
        return x;
    }

    DEVICE f32 decay(f32 gate, f32 own) const {
        return __expf(__fmul_rn(a.bound, sigmoid(__fmul_rn(speed, __fadd_rn(gate, own)))));
    }

    DEVICE void prepare(DeltaTile& t, i32 at, RawDelta& x) const {
        const i32 lane = lane_id();
        constexpr f32 kScale = 0.08838834764831845f; // 128^-1/2
        const f32 qq = sum_32(dot_4(x.q, x.q)), kk = sum_32(dot_4(x.k, x.k)), kq = sum_32(dot_4(x.k, x.q));
        const f32 rq = __fmul_rn(rsqrtf(__fadd_rn(qq, 1e-6f)), kScale), rk = rsqrtf(__fadd_rn(kk, 1e-6f));
        x.q = times_4(x.q, rq);
        x.k = times_4(x.k, rk);
        reinterpret_cast<float4*>(t.q[at])[lane] = x.q;
        reinterpret_cast<float4*>(t.k[at])[lane] = x.k;
        reinterpret_cast<float4*>(t.decay[at])[lane] = make_float4(decay(x.gate.x, bias.x), decay(x.gate.y, bias.y),
                                                                   decay(x.gate.z, bias.z), decay(x.gate.w, bias.w));
        reinterpret_cast<float2*>(t.v[at])[lane] = make_float2(x.v[0], x.v[1]);
        if (lane == 0) {
            t.kq[at] = __fmul_rn(kq, __fmul_rn(rk, rq)), t.beta[at] = sigmoid(x.beta);
            t.row[at] = x.row, t.snapshot[at] = x.snapshot;
        }
    }
};

// The state of a warp's columns. Lane 2g + c holds columns 4c to 4c + 3 of keys 8g to 8g + 7, one vector per key.
struct DeltaState {
    float4 s[8];

    DEVICE void load(const f32* from) {
#pragma unroll
        for (int i = 0; i < 8; i++) s[i] = *reinterpret_cast<const float4*>(from + i * kDelta);
    }
    DEVICE void store(f32* to) const {
#pragma unroll
        for (int i = 0; i < 8; i++) *reinterpret_cast<float4*>(to + i * kDelta) = s[i];
    }
    DEVICE void clear() {
#pragma unroll
        for (int i = 0; i < 8; i++) s[i] = make_float4(0, 0, 0, 0);
    }

    static DEVICE void eight(f32 (&out)[8], const f32* row, i32 group) {
        const float4 low = reinterpret_cast<const float4*>(row)[2 * group],
                     high = reinterpret_cast<const float4*>(row)[2 * group + 1];
        out[0] = low.x, out[1] = low.y, out[2] = low.z, out[3] = low.w;
        out[4] = high.x, out[5] = high.y, out[6] = high.z, out[7] = high.w;
    }

    // The values that a lane reads from a prepared row.
    struct Row {
        f32 key[8], query[8], decay[8], v, beta, kq;
        i32 row, snapshot;

        DEVICE void load(const DeltaTile& t, i32 at, i32 group, i32 column) {
            eight(key, t.k[at], group);
            eight(query, t.q[at], group);
            eight(decay, t.decay[at], group);
            v = t.v[at][column], beta = t.beta[at], kq = t.kq[at];
            row = t.row[at], snapshot = t.snapshot[at];
        }
    };

    // Updates the state with a row. Returns the output in the lanes that have one (own). `meanwhile` runs before the
    // sums are exchanged between lanes.
    template <class Meanwhile>
    DEVICE f32 row(const Row& x, i32 group, const Meanwhile& meanwhile) {
        float4 p = make_float4(0, 0, 0, 0), o = p;
        const f32 *key = x.key, *query = x.query;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            s[i] = times_4(s[i], x.decay[i]);
            p.x = __fmaf_rn(s[i].x, key[i], p.x), p.y = __fmaf_rn(s[i].y, key[i], p.y);
            p.z = __fmaf_rn(s[i].z, key[i], p.z), p.w = __fmaf_rn(s[i].w, key[i], p.w);
            o.x = __fmaf_rn(s[i].x, query[i], o.x), o.y = __fmaf_rn(s[i].y, query[i], o.y);
            o.z = __fmaf_rn(s[i].z, query[i], o.z), o.w = __fmaf_rn(s[i].w, query[i], o.w);
        }
        meanwhile();
        // Sums over the 16 groups. The low bit of the group number selects p or o, and the next two bits select a
        // column.
        const bool outs = group & 1, upper = group & 2, odd = group & 4;
        float4 keep = outs ? o : p, give = outs ? p : o;
        keep.x = __fadd_rn(keep.x, __shfl_xor_sync(ptx::kFullMask, give.x, 2));
        keep.y = __fadd_rn(keep.y, __shfl_xor_sync(ptx::kFullMask, give.y, 2));
        keep.z = __fadd_rn(keep.z, __shfl_xor_sync(ptx::kFullMask, give.z, 2));
        keep.w = __fadd_rn(keep.w, __shfl_xor_sync(ptx::kFullMask, give.w, 2));
        f32 a = upper ? keep.z : keep.x, b = upper ? keep.w : keep.y;
        a = __fadd_rn(a, __shfl_xor_sync(ptx::kFullMask, upper ? keep.x : keep.z, 4));
        b = __fadd_rn(b, __shfl_xor_sync(ptx::kFullMask, upper ? keep.y : keep.w, 4));
        f32 sum = __fadd_rn(odd ? b : a, __shfl_xor_sync(ptx::kFullMask, odd ? a : b, 8));
        sum = __fadd_rn(sum, __shfl_xor_sync(ptx::kFullMask, sum, 16));
        // Two values are broadcast to every lane that has column `column`: first the value that the row writes to the
        // state, then the output.
        const f32 u = __fmul_rn(x.beta, __fsub_rn(x.v, sum));
        const f32 written = __shfl_xor_sync(ptx::kFullMask, u, 2);
        const i32 from = lane_id() & 1; // the lane of group 0 with these columns
        float4 n;
        n.x = __shfl_sync(ptx::kFullMask, u, from);
        n.y = __shfl_sync(ptx::kFullMask, u, from + 8);
        n.z = __shfl_sync(ptx::kFullMask, u, from + 4);
        n.w = __shfl_sync(ptx::kFullMask, u, from + 12);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            s[i].x = __fmaf_rn(key[i], n.x, s[i].x), s[i].y = __fmaf_rn(key[i], n.y, s[i].y);
            s[i].z = __fmaf_rn(key[i], n.z, s[i].z), s[i].w = __fmaf_rn(key[i], n.w, s[i].w);
        }
        return __fmaf_rn(x.kq, written, sum);
    }

    // Half of a row update: two of the lane's four columns. The sums of one half are exchanged between lanes while the
    // other half is multiplied. Every sum is added in the order of row().
    struct Half {
        f32 p[2], o[2];
    };
    template <int H>
    DEVICE f32& at(int i, int c) { return (&s[i].x)[2 * H + c]; }

    // Applies the decay to half of the state and multiplies it by key and query.
    template <int H>
    DEVICE Half read(const Row& x) {
        Half h{};
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int c = 0; c < 2; c++) {
                at<H>(i, c) = __fmul_rn(at<H>(i, c), x.decay[i]);
                h.p[c] = __fmaf_rn(at<H>(i, c), x.key[i], h.p[c]);
                h.o[c] = __fmaf_rn(at<H>(i, c), x.query[i], h.o[c]);
            }
        }
        return h;
    }
    // Returns the output of the lane's own column, and sets n to the values that the row writes to both columns.
    static DEVICE f32 sums(const Row& x, const Half& h, i32 group, f32 v, f32 (&n)[2]) {
        const bool outs = group & 1, upper = group & 2;
        f32 keep[2];
#pragma unroll
        for (int c = 0; c < 2; c++)
            keep[c] = __fadd_rn(outs ? h.o[c] : h.p[c],
                                __shfl_xor_sync(ptx::kFullMask, outs ? h.p[c] : h.o[c], 2));
        f32 sum = __fadd_rn(upper ? keep[1] : keep[0],
                            __shfl_xor_sync(ptx::kFullMask, upper ? keep[0] : keep[1], 4));
        sum = __fadd_rn(sum, __shfl_xor_sync(ptx::kFullMask, sum, 8));
        sum = __fadd_rn(sum, __shfl_xor_sync(ptx::kFullMask, sum, 16));
        const f32 u = __fmul_rn(x.beta, __fsub_rn(v, sum));
        const i32 from = lane_id() & 1;
        n[0] = __shfl_sync(ptx::kFullMask, u, from);
        n[1] = __shfl_sync(ptx::kFullMask, u, from + 4);
        return __fmaf_rn(x.kq, __shfl_xor_sync(ptx::kFullMask, u, 2), sum);
    }
    template <int H>
    DEVICE void write(const Row& x, const f32 (&n)[2]) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int c = 0; c < 2; c++) at<H>(i, c) = __fmaf_rn(x.key[i], n[c], at<H>(i, c));
        }
    }
};

// Many: For many rows of a sequence, four more warps prepare the rows, and the other warps load the next row while
//       they add the sums of the current row. In this case few blocks run, and a single block cannot hide latency
//       otherwise. Results are bitwise equal.
constexpr i32 kDeltaPreparers = 4;

// Processes the eight rows of a tile. Half of the columns read the next row while the sums of the other half are added,
// so that no lane waits. column: first column of the lane. Lanes without an output write to the unused columns of
// DeltaOut, because skipping the write would be a branch in every row.
DEVICE void delta_tile(const DeltaTile& t, DeltaOut& to, DeltaState& state, i32 group, i32 column) {
    const i32 left = column + (group & 2 ? 1 : 0), right = left + 2;
    u16* mine = &to.value[0][(group & 4 ? right : left) + (group & 1 ? 0 : kDeltaColumns)];
    DeltaState::Row rows[2];
    rows[0].load(t, 0, group, left);
    DeltaState::Half low = state.read<0>(rows[0]);
#pragma unroll
    for (int i = 0; i < kDeltaTile; i++) {
        const DeltaState::Row& now = rows[i % 2];
        DeltaState::Row& next = rows[(i + 1) % 2];
        const f32 v = t.v[i][right];
        f32 n[2], m[2];
        if (i + 1 < kDeltaTile) next.load(t, i + 1, group, left);
        const DeltaState::Half high = state.read<1>(now);
        const f32 out = DeltaState::sums(now, low, group, now.v, n);
        state.write<0>(now, n);
        if (i + 1 < kDeltaTile) low = state.read<0>(next);
        const f32 other = DeltaState::sums(now, high, group, v, m);
        state.write<1>(now, m);
        mine[i * 2 * kDeltaColumns] = static_cast<u16>(pack_bf16_fast(group & 4 ? other : out, 0.0f));
    }
}

// Writes the outputs of a tile. Thread t of the 128 preparing threads has four columns of a row. to: address of row 0.
DEVICE void flush(const DeltaArgs& a, const DeltaOut& from, u16* to, i32 t) {
    static_assert(kDeltaTile * kDeltaColumns == 4 * 32 * kDeltaPreparers, "a thread has four columns");
    const i32 row = from.row[t >> 4], column = 4 * (t & 15);
    if (row >= 0)
        *reinterpret_cast<uint2*>(to + row * a.out_stride + column) =
            *reinterpret_cast<const uint2*>(&from.value[t >> 4][column]);
}

template <bool Many>
DEVICE void delta_body(const DeltaArgs& a) {
    __shared__ __align__(16) DeltaTile tiles[2];
    __shared__ __align__(16) DeltaOut outs[Many ? 2 : 1];
    begin_after_previous();
    constexpr i32 kWarps = Many ? kWarpsPerBlock + kDeltaPreparers : kWarpsPerBlock;
    const i32 warp = threadIdx.x / 32, lane = lane_id();
    const i32 head = blockIdx.x >> 1, first = (blockIdx.x & 1) * kDeltaColumns;
    const Span s = span_at(a.of, blockIdx.y);
    if (s.slot < 0) {
        for (i32 i = warp; i < s.rows; i += kWarps) {
            const i32 row = row_at(a.of, s, i);
            if (row < 0) continue;
            reinterpret_cast<u32*>(a.out + row * a.out_stride + static_cast<i64>(head) * kDelta + first)[lane] = 0;
        }
        return;
    }
    if (s.held + s.rows == 0 && !s.begins) return;
    const DeltaHead h{a, s, head, first, reinterpret_cast<const float4*>(a.bias)[head * (kDelta / 4) + lane],
                      expf(a.a_log[head])};
    const i32 rows = s.held + s.rows;
    if (Many && warp >= kWarpsPerBlock) {
        constexpr i32 kEach = kDeltaTile / kDeltaPreparers;
        const i32 mine = (warp - kWarpsPerBlock) * kEach;
        RawDelta raw[kEach];
#pragma unroll
        for (i32 j = 0; j < kEach; j++) raw[j] = h.load(mine + j);
        u16* to = a.out + static_cast<i64>(head) * kDelta + first;
        const i32 thread = threadIdx.x - kThreads;
        i32 b = 0;
        for (i32 from = 0; from < rows; from += kDeltaTile, b ^= 1) {
            if (from >= 2 * kDeltaTile) flush(a, outs[b], to, thread);
#pragma unroll
            for (i32 j = 0; j < kEach; j++) h.prepare(tiles[b], mine + j, raw[j]);
            if (from + kDeltaTile < rows) {
#pragma unroll
                for (i32 j = 0; j < kEach; j++) raw[j] = h.load(from + kDeltaTile + mine + j);
            }
            __syncthreads(); // this tile is prepared, and all threads have read the previous tile
        }
        if (rows > kDeltaTile) flush(a, outs[b], to, thread);
        __syncthreads();
        if (rows > 0) flush(a, outs[b ^ 1], to, thread);
        return;
    }
    const i32 group = lane >> 1;
    // The column whose sums a lane has at the end. Bits 1 and 2 of its group number select it, in the order in which
    // row() exchanges values.
    const i32 own = 8 * warp + 4 * (lane & 1) + (group & 2 ? 2 : 0) + (group & 4 ? 1 : 0);
    const i64 size = static_cast<i64>(kDelta) * kDelta;
    const i64 at = 8 * group * static_cast<i64>(kDelta) + first + 8 * warp + 4 * (lane & 1);
    f32* mine = a.state + (static_cast<i64>(s.slot) * a.heads + head) * size + at;
    DeltaState state;
    if (s.begins) state.clear();
    else state.load(mine);
    RawDelta raw;
    if constexpr (!Many) {
        raw = h.load(warp);
        h.prepare(tiles[0], warp, raw);
    }
    if (rows > 0) __syncthreads();
    for (i32 from = 0, b = 0; from < rows; from += kDeltaTile, b ^= 1) {
        const bool more = from + kDeltaTile < rows;
        if (!Many && more) raw = h.load(from + kDeltaTile + warp);
        const DeltaTile& t = tiles[b];
        const i32 count = min(kDeltaTile, rows - from);
        DeltaState::Row one, other;
        if constexpr (Many) {
            const bool whole = count == kDeltaTile && !s.holds && t.whole();
            if (threadIdx.x < kDeltaTile) outs[b].row[threadIdx.x] = whole ? t.row[threadIdx.x] : -1;
            if (whole) {
                delta_tile(t, outs[b], state, group, 8 * warp + 4 * (lane & 1));
                const i32 kept = t.snapshot[kDeltaTile - 1];
                if (kept >= 0) state.store(a.kept + (static_cast<i64>(kept) * a.heads + head) * size + at);
                if (more) __syncthreads();
                continue;
            }
        }
        const auto take = [&](i32 i, DeltaState::Row& now, DeltaState::Row& next) {
            if (i >= count) return;
            // Rows that are held back do not update the saved state, so the state is stored before the first of them.
            if (s.holds && from + i == s.held) state.store(mine);
            f32 out;
            if constexpr (Many) {
                out = state.row(now, group, [&] { next.load(t, min(i + 1, kDeltaTile - 1), group, own); });
            } else {
                now.load(t, i, group, own);
                out = state.row(now, group, [] {});
            }
            if (now.row >= 0 && (group & 9) == 1)
                a.out[now.row * a.out_stride + static_cast<i64>(head) * kDelta + first + own] =
                    static_cast<u16>(pack_bf16_fast(out, 0.0f));
            if (now.snapshot >= 0)
                state.store(a.kept + (static_cast<i64>(now.snapshot) * a.heads + head) * size + at);
        };
        if constexpr (Many) one.load(t, 0, group, own);
        for (i32 i = 0; i < count; i += 2) {
            take(i, one, other);
            take(i + 1, other, one);
        }
        if (!Many && more) h.prepare(tiles[b ^ 1], warp, raw);
        if (!Many || more) __syncthreads();
    }
    if (!s.holds || s.rows == 0) state.store(mine);
    if constexpr (Many) __syncthreads(); // the preparing warps then write the last outputs
}

// Saves the held-back rows of this pass, after all blocks have read the earlier held-back rows. A warp has one head of
// a row.
DEVICE void delta_hold_body(const DeltaArgs& a) {
    begin_after_previous();
    const Span s = span_at(a.of, blockIdx.y);
    const i32 head = blockIdx.x * kWarpsPerBlock + threadIdx.x / 32;
    if (s.slot < 0 || !s.holds || head >= a.heads) return;
    const i64 width = static_cast<i64>(a.heads) * kDelta, at = static_cast<i64>(head) * kDelta;
    for (i32 i = 0; i < s.rows; i++) {
        const i32 row = row_at(a.of, s, i);
        if (row < 0) return;
        f32* held = a.held + (static_cast<i64>(s.slot) * a.of.held + i) * (3 * width + a.heads);
        for (i32 c = lane_id(); c < kDelta; c += 32) {
            held[at + c] = bf16_low(a.k[row * a.k_stride + at + c]);
            held[width + at + c] = bf16_low(a.v[row * a.v_stride + at + c]);
            held[2 * width + at + c] = a.gate[row * a.gate_stride + at + c];
        }
        if (lane_id() == 0) held[3 * width + head] = a.beta[row * a.beta_stride + head];
    }
}
