// The gated delta rule in its recurrent form. Every head of every sequence has a state [128 keys, 128 values], which
// each row updates.
//
//     S' = diag(exp(g)) S;  u = beta (v - S'^T k);  S = S' + k (x) u;  out = S^T q = S'^T q + (k . q) u
//
// In:    bf16 q, k, v after the convolution, float32 gates before their sigmoid; states in slots.
// Block: 64 columns of one head and sequence; eight warps with eight columns each. A lane keeps two columns of sixteen
//        keys in registers, 32 values, from the first row to the last. The state is therefore read once and written
//        once, in whole sectors. Rows are processed eight at a time: half a warp prepares one row (norms, decays) in
//        shared memory while the previous eight rows are computed.
// Sums:  S'^T k and S'^T q of a column are sums over sixteen keys in each of eight lanes. The eight sums are added in
//        pairs of lanes whose numbers differ in bit 2, then 3, then 4. For S'^T k all eight lanes do so at once. An
//        output leaves the lanes as four parts in shared memory, which the preparing warps add when they write it.
// Bits:  the bits of a row depend neither on the division of its sequence into passes nor on other sequences.
// Bytes: 64 KiB of state read and written for each head and sequence.
#pragma once
#include "smxx/linear/parts.cuh"

constexpr i32 kDeltaColumns = 64; // value columns per block
constexpr i32 kDeltaTile = 8;     // rows that are prepared together

constexpr i32 kLaneKeys = 16;                  // keys of a lane
constexpr i32 kLaneColumns = 2;                // columns of a lane
constexpr i32 kKeyGroups = kDelta / kLaneKeys; // lanes that share columns
constexpr i32 kKeyVectors = kLaneKeys / 4;     // vectors of four keys of a lane
constexpr i32 kGroupStep = 32 / kKeyGroups;    // distance of lanes with the same columns
constexpr i32 kPreparerLanes = 16;             // lanes that prepare a row, eight channels each
constexpr i32 kParts = kKeyGroups / 2;         // parts of an output that are added when it is written

// A value for each key of a row: vector [j][g] has keys 4j to 4j + 3 of group g.
using KeyRow = float4[kKeyVectors][kKeyGroups];

struct DeltaTile {
    KeyRow k[kDeltaTile], q[kDeltaTile], decay[kDeltaTile];
    f32 v[kDeltaTile][kDeltaColumns];
    float2 factors[kDeltaTile][2];             // beta and, in [0], k . q of a row; in [1] zero
    i32 row[kDeltaTile], snapshot[kDeltaTile]; // row of the pass, and snapshot slot, of each row of the tile; -1: none

    // Reports whether the tile has no snapshots, so that no state is stored before its end.
    DEVICE bool whole() const {
        bool none = true;
#pragma unroll
        for (int i = 0; i + 1 < kDeltaTile; i++) none = none && snapshot[i] < 0;
        return none;
    }
};

// Parts of the outputs of a tile, each of two groups of keys.
struct DeltaOut {
    f32 part[kDeltaTile][kParts][kDeltaColumns];
    i32 row[kDeltaTile]; // row of the pass; -1: no row, or already written
};

// The values that a lane loads from a row before it prepares the row: eight channels of q and k, and four values.
struct RawDelta {
    uint2 q[2], k[2], v;
    f32 beta;
    i32 row;
};

// Returns the sum over the lanes that prepare a row.
DEVICE f32 row_sum(f32 v) {
#pragma unroll
    for (int d = kPreparerLanes / 2; d > 0; d /= 2) v = __fadd_rn(v, __shfl_xor_sync(ptx::kFullMask, v, d));
    return v;
}
DEVICE f32 dot_4(float4 a, float4 b, f32 sum) {
    return __fmaf_rn(a.w, b.w, __fmaf_rn(a.z, b.z, __fmaf_rn(a.y, b.y, __fmaf_rn(a.x, b.x, sum))));
}
DEVICE float4 plus_4(float4 a, float4 b) {
    return make_float4(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z), __fadd_rn(a.w, b.w));
}
DEVICE float4 times_4(float4 a, f32 s) {
    return make_float4(__fmul_rn(a.x, s), __fmul_rn(a.y, s), __fmul_rn(a.z, s), __fmul_rn(a.w, s));
}

// Rows are prepared with hardware approximations, because other warps wait for prepared rows.
struct DeltaHead {
    const DeltaArgs& a;
    Span s;
    i32 head, first;     // first: first column of the block
    f32 speed, strength; // factors of a gate before and after the sigmoid, for powers of two
    i32 lane;            // lane among those that prepare a row
    i32 group, vector;   // place of the lane's eight channels in a KeyRow

    DEVICE DeltaHead(const DeltaArgs& a, const Span& s, i32 head, i32 first)
        : a(a), s(s), head(head), first(first), speed(__fmul_rn(expf(a.a_log[head]), kLog2E)),
          strength(__fmul_rn(a.bound, kLog2E)), lane(lane_id() % kPreparerLanes), group(lane % kKeyGroups),
          vector(2 * (lane / kKeyGroups)) {}

    // First of the lane's eight channels in a row of all heads. Eight adjacent lanes have channels of different groups,
    // so that they write to different banks.
    DEVICE i64 channel() const { return static_cast<i64>(head) * kDelta + kLaneKeys * group + 4 * vector; }

    // Loads entry i of the rows of a sequence; entries 0 to held - 1 are held-back rows.
    DEVICE RawDelta load(i32 i) const {
        RawDelta x{};
        x.row = -1;
        if (i >= s.held + s.rows) return x;
        const i64 at = channel(), values = static_cast<i64>(head) * kDelta + first + 4 * lane;
        if (i < s.held) {
            const i64 width = static_cast<i64>(a.heads) * kDelta;
            const f32* held = a.held + (static_cast<i64>(s.slot) * a.of.held + i) * (3 * width + a.heads);
            // A held-back row may be aligned to only four bytes. Its keys and values were bf16.
            const auto pair = [](const f32* from) { return pack_bf16_fast(from[0], from[1]); };
            const auto four = [&](const f32* from) { return make_uint2(pair(from), pair(from + 2)); };
#pragma unroll
            for (int j = 0; j < 2; j++) x.k[j] = four(held + at + 4 * j);
            x.v = four(held + width + values);
            x.beta = held[3 * width + head];
            return x;
        }
        x.row = row_at(a.of, s, i - s.held);
        if (x.row < 0) return x;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            x.q[j] = reinterpret_cast<const uint2*>(a.q + x.row * a.q_stride + at)[j];
            x.k[j] = reinterpret_cast<const uint2*>(a.k + x.row * a.k_stride + at)[j];
        }
        x.v = *reinterpret_cast<const uint2*>(a.v + x.row * a.v_stride + values);
        x.beta = a.beta[x.row * a.beta_stride + head];
        return x;
    }

    // Loads half of the lane's gates of entry i, which is row `row` of the pass or, if that is negative, held back or
    // missing.
    DEVICE float4 gates(i32 i, i32 row, i32 half) const {
        const i64 at = channel() + 4 * half;
        if (row >= 0) return *reinterpret_cast<const float4*>(a.gate + row * a.gate_stride + at);
        if (i >= s.held) return make_float4(0, 0, 0, 0);
        const i64 width = static_cast<i64>(a.heads) * kDelta;
        const f32* from = a.held + (static_cast<i64>(s.slot) * a.of.held + i) * (3 * width + a.heads) + 2 * width + at;
        return make_float4(from[0], from[1], from[2], from[3]);
    }

    DEVICE f32 decay(f32 gate, f32 own) const {
        return power_of_two(__fmul_rn(strength, sigmoid_of_power(__fmul_rn(speed, __fadd_rn(gate, own)))));
    }

    // Prepares row `at` of a tile from the loaded values. Both halves of a warp prepare a row at the same time.
    template <class Gates>
    DEVICE void prepare(DeltaTile& t, i32 at, const RawDelta& x, const Gates& gates) const {
        constexpr f32 kScale = 0.08838834764831845f; // 128^-1/2
        f32 qq = 0, kk = 0, kq = 0;
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const float4 q = widen_bf16x4(x.q[j]), k = widen_bf16x4(x.k[j]);
            qq = dot_4(q, q, qq), kk = dot_4(k, k, kk), kq = dot_4(k, q, kq);
        }
        qq = row_sum(qq), kk = row_sum(kk), kq = row_sum(kq);
        const f32 rq = __fmul_rn(inverse_root_of(__fadd_rn(qq, 1e-6f)), kScale),
                  rk = inverse_root_of(__fadd_rn(kk, 1e-6f));
#pragma unroll
        for (int j = 0; j < 2; j++) {
            t.q[at][vector + j][group] = times_4(widen_bf16x4(x.q[j]), rq);
            t.k[at][vector + j][group] = times_4(widen_bf16x4(x.k[j]), rk);
        }
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const float4 g = gates(j), b = reinterpret_cast<const float4*>(a.bias + channel())[j];
            t.decay[at][vector + j][group] =
                make_float4(decay(g.x, b.x), decay(g.y, b.y), decay(g.z, b.z), decay(g.w, b.w));
        }
        reinterpret_cast<float4*>(t.v[at])[lane] = widen_bf16x4(x.v);
        if (lane == 0) {
            const f32 beta = fast_sigmoid(x.beta);
            t.factors[at][0] = make_float2(beta, __fmul_rn(kq, __fmul_rn(rk, rq)));
            t.factors[at][1] = make_float2(beta, 0.0f);
            t.row[at] = x.row, t.snapshot[at] = x.row < 0 ? -1 : snapshot_at(a.of, x.row);
        }
    }
};

// Returns the sum of two lanes' values. Each lane gives away `give` and keeps `keep`, which the other lane gives away.
DEVICE f32 exchange(f32 keep, f32 give, i32 distance) {
    return __fadd_rn(keep, __shfl_xor_sync(ptx::kFullMask, give, distance));
}

// The state of a warp's columns. Lane 4g + c holds columns 2c and 2c + 1 of keys 16g to 16g + 15.
struct DeltaState {
    f32 s[kLaneKeys][kLaneColumns];

    DEVICE void load(const f32* from) {
#pragma unroll
        for (int i = 0; i < kLaneKeys; i++) {
            const float2 v = *reinterpret_cast<const float2*>(from + i * kDelta);
            s[i][0] = v.x, s[i][1] = v.y;
        }
    }
    DEVICE void store(f32* to) const {
#pragma unroll
        for (int i = 0; i < kLaneKeys; i++)
            *reinterpret_cast<float2*>(to + i * kDelta) = make_float2(s[i][0], s[i][1]);
    }
    DEVICE void clear() {
#pragma unroll
        for (int i = 0; i < kLaneKeys; i++) s[i][0] = s[i][1] = 0;
    }

    // The values of a prepared row for the lane's keys and columns. They are loaded in two parts: keys and decays are
    // needed first.
    struct Row {
        float4 k[kKeyVectors], decay[kKeyVectors], q[kKeyVectors];
        float2 factors, v; // beta and, in group 0, k . q; the values of the lane's columns

        DEVICE void load_keys(const DeltaTile& t, i32 at, i32 group) {
#pragma unroll
            for (int j = 0; j < kKeyVectors; j++) decay[j] = t.decay[at][j][group], k[j] = t.k[at][j][group];
        }
        DEVICE void load_rest(const DeltaTile& t, i32 at, i32 group, i32 column) {
#pragma unroll
            for (int j = 0; j < kKeyVectors; j++) q[j] = t.q[at][j][group];
            factors = t.factors[at][group == 0 ? 0 : 1];
            v = *reinterpret_cast<const float2*>(&t.v[at][column]);
        }
    };

    // Updates the state with a row. out has the lane's part of the outputs of its columns. `meanwhile` gets the
    // distance of the lanes after each exchange of sums. With Between, outputs are computed between the exchanges, to
    // hide their latency. The compiler would move them behind the exchanges, so the distance of an exchange depends on
    // outputs: `zero` is 0, which the compiler does not know.
    template <bool Between, class Meanwhile>
    DEVICE void row(const Row& x, f32 (&out)[kLaneColumns], i32 zero, const Meanwhile& meanwhile) {
        f32 p[kLaneColumns][2] = {}, o[kLaneColumns][2] = {}, sum[kLaneColumns];
#pragma unroll
        for (int j = 0; j < kKeyVectors; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int c = 0; c < kLaneColumns; c++) {
                    f32& v = s[4 * j + i][c];
                    v = __fmul_rn(v, (&x.decay[j].x)[i]);
                    p[c][i % 2] = __fmaf_rn(v, (&x.k[j].x)[i], p[c][i % 2]);
                }
            }
        }
#pragma unroll
        for (int c = 0; c < kLaneColumns; c++) sum[c] = __fadd_rn(p[c][0], p[c][1]);
        const auto outputs = [&](int j) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int c = 0; c < kLaneColumns; c++)
                    o[c][i % 2] = __fmaf_rn(s[4 * j + i][c], (&x.q[j].x)[i], o[c][i % 2]);
            }
        };
        i32 after = 0; // zero, once the outputs of the vectors so far are computed
#pragma unroll
        for (int d = kGroupStep, j = 0; d < 32; d *= 2, j++) {
#pragma unroll
            for (int c = 0; c < kLaneColumns; c++) sum[c] = exchange(sum[c], sum[c], d | after);
            meanwhile(d);
            if (Between) {
                outputs(j);
                after = (__float_as_int(o[0][1]) | __float_as_int(o[1][1])) & zero;
            }
        }
#pragma unroll
        for (int j = Between ? kKeyVectors - 1 : 0; j < kKeyVectors; j++) outputs(j);
#pragma unroll
        for (int c = 0; c < kLaneColumns; c++) {
            const f32 u = __fmul_rn(x.factors.x, __fsub_rn(c == 0 ? x.v.x : x.v.y, sum[c]));
#pragma unroll
            for (int j = 0; j < kKeyVectors; j++) {
#pragma unroll
                for (int i = 0; i < 4; i++) s[4 * j + i][c] = __fmaf_rn((&x.k[j].x)[i], u, s[4 * j + i][c]);
            }
            out[c] = __fmaf_rn(x.factors.y, u, __fadd_rn(o[c][0], o[c][1]));
        }
    }
};

// Many: For many rows of a sequence, four more warps prepare the rows. In this case few blocks run, and a single block
//       cannot hide latency otherwise. Results are bitwise equal.
constexpr i32 kDeltaPreparers = 4;

// Processes the eight rows of a tile. column: first of the lane's columns. Two groups of keys exchange their outputs,
// one column each.
DEVICE void delta_tile(const DeltaTile& t, DeltaOut& to, DeltaState& state, i32 group, i32 column, i32 zero) {
    const bool upper = group & 1;
    DeltaState::Row rows[2];
    rows[0].load_keys(t, 0, group);
    f32* mine = &to.part[0][group / 2][column + (upper ? 1 : 0)];
#pragma unroll
    for (int i = 0; i < kDeltaTile; i++) {
        f32 out[kLaneColumns];
        DeltaState::Row& next = rows[(i + 1) % 2];
        rows[i % 2].load_rest(t, i, group, column);
        state.row<true>(rows[i % 2], out, zero, [&](int d) {
            if (d == 2 * kGroupStep && i + 1 < kDeltaTile) next.load_keys(t, i + 1, group);
        });
        mine[i * kParts * kDeltaColumns] = exchange(upper ? out[1] : out[0], upper ? out[0] : out[1], kGroupStep);
    }
}

// Writes the outputs of a tile. Thread t of the 128 preparing threads has four columns of a row. to: address of row 0.
DEVICE void flush(const DeltaArgs& a, const DeltaOut& from, u16* to, i32 t) {
    static_assert(kDeltaTile * kDeltaColumns == 4 * 32 * kDeltaPreparers, "a thread has four columns");
    const i32 row = from.row[t >> 4], column = 4 * (t & 15);
    if (row < 0) return;
    float4 part[kParts];
#pragma unroll
    for (int i = 0; i < kParts; i++) part[i] = *reinterpret_cast<const float4*>(&from.part[t >> 4][i][column]);
    const float4 low = plus_4(part[0], part[1]), high = plus_4(part[2], part[3]);
    store_bf16x4(to + row * a.out_stride + column, plus_4(low, high));
}

template <bool Many>
DEVICE void delta_body(const DeltaArgs& a) {
    __shared__ __align__(16) DeltaTile tiles[2];
    __shared__ __align__(16) DeltaOut outs[Many ? 2 : 1];
    begin_after_previous();
    constexpr i32 kWarps = Many ? kWarpsPerBlock + kDeltaPreparers : kWarpsPerBlock;
    const i32 warp = threadIdx.x / 32, lane = lane_id();
    const i32 head = blockIdx.x >> 1, first = (blockIdx.x & 1) * kDeltaColumns;
    const Span s = recurrent_rows(a, span_at(a.of, blockIdx.y), blockIdx.y);
    if (s.slot < 0) {
        for (i32 i = warp; i < s.rows; i += kWarps) {
            const i32 row = row_at(a.of, s, i);
            if (row < 0) continue;
            reinterpret_cast<u32*>(a.out + row * a.out_stride + static_cast<i64>(head) * kDelta + first)[lane] = 0;
        }
        return;
    }
    if (s.held + s.rows == 0 && !s.begins) return;
    const i32 rows = s.held + s.rows;
    if (Many && warp >= kWarpsPerBlock) {
        const DeltaHead h(a, s, head, first);
        const i32 thread = threadIdx.x - kThreads, mine = thread / kPreparerLanes;
        RawDelta raw;
        float4 gates[2];
        const auto load = [&](i32 i) {
            raw = h.load(i);
#pragma unroll
            for (i32 j = 0; j < 2; j++) gates[j] = h.gates(i, raw.row, j);
        };
        load(mine);
        u16* to = a.out + static_cast<i64>(head) * kDelta + first;
        i32 b = 0;
        for (i32 from = 0; from < rows; from += kDeltaTile, b ^= 1) {
            if (from >= 2 * kDeltaTile) flush(a, outs[b], to, thread);
            h.prepare(tiles[b], mine, raw, [&](i32 j) { return gates[j]; });
            if (from + kDeltaTile < rows) load(from + kDeltaTile + mine);
            __syncthreads(); // this tile is prepared, and all threads have read the previous tile
        }
        if (rows > kDeltaTile) flush(a, outs[b], to, thread);
        __syncthreads();
        if (rows > 0) flush(a, outs[b ^ 1], to, thread);
        return;
    }
    const i32 group = lane / kGroupStep, column = 8 * warp + kLaneColumns * (lane % kGroupStep);
    // Returns the address of the lane's first value in a state.
    const auto place = [&](f32* states, i32 slot) {
        return states + (static_cast<i64>(slot) * a.heads + head) * (kDelta * kDelta) +
               (kLaneKeys * kDelta * group + first + column);
    };
    DeltaState state;
    // A warp prepares two rows. It has not enough registers to load its part of the state at the same time, and loads
    // the gates of later tiles only when it needs them.
    const auto prepare = [&](DeltaTile& t, i32 from, bool early) {
        if (Many || 2 * warp >= min(kDeltaTile, rows - from)) return;
        const i32 at = threadIdx.x / kPreparerLanes;
        const DeltaHead h(a, s, head, first);
        const RawDelta raw = h.load(from + at);
        if (!early) return h.prepare(t, at, raw, [&](i32 j) { return h.gates(from + at, raw.row, j); });
        const float4 gates[2] = {h.gates(from + at, raw.row, 0), h.gates(from + at, raw.row, 1)};
        h.prepare(t, at, raw, [&](i32 j) { return gates[j]; });
    };
    prepare(tiles[0], 0, true);
    if (s.begins) state.clear();
    else state.load(place(a.state, s.slot));
    if (rows > 0) __syncthreads();
    for (i32 from = 0, b = 0; from < rows; from += kDeltaTile, b ^= 1) {
        const bool more = from + kDeltaTile < rows;
        const DeltaTile& t = tiles[b];
        const i32 count = min(kDeltaTile, rows - from);
        bool whole = false;
        if constexpr (Many) {
            whole = count == kDeltaTile && !s.holds && t.whole();
            if (threadIdx.x < kDeltaTile) outs[b].row[threadIdx.x] = whole ? t.row[threadIdx.x] : -1;
            if (whole) {
                // The last argument is zero, which the compiler does not know.
                delta_tile(t, outs[b], state, group, column, a.heads >> 20);
                const i32 kept = t.snapshot[kDeltaTile - 1];
                if (kept >= 0) state.store(place(a.kept, kept));
            }
        }
        for (i32 i = 0; i < (whole ? 0 : count); i++) {
            // Rows that are held back do not update the saved state, so the state is stored before the first of them.
            if (s.holds && from + i == s.held) state.store(place(a.state, s.slot));
            f32 out[kLaneColumns];
            DeltaState::Row x;
            x.load_keys(t, i, group);
            state.row<false>(x, out, 0, [&](int d) {
                if (d == 2 * kGroupStep) x.load_rest(t, i, group, column);
            });
#pragma unroll
            for (int c = 0; c < kLaneColumns; c++) {
#pragma unroll
                for (int d = kGroupStep; d < 32; d *= 2) out[c] = exchange(out[c], out[c], d);
            }
            if (t.row[i] >= 0 && group == 0)
                *reinterpret_cast<u32*>(a.out + t.row[i] * a.out_stride + static_cast<i64>(head) * kDelta + first +
                                        column) = pack_bf16_fast(out[0], out[1]);
            if (t.snapshot[i] >= 0) state.store(place(a.kept, t.snapshot[i]));
        }
        if (more) prepare(tiles[b ^ 1], from + kDeltaTile, false);
        if (!Many || more) __syncthreads();
    }
    if (!s.holds || s.rows == 0) state.store(place(a.state, s.slot));
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
