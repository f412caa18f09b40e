// The gated delta rule over groups of 16 rows (parts.cuh), by products of bf16 with float32 sums. For one head, a group
// with rows 1 to 16, G_i the sum of g_1 to g_i and m the middle of the group:
//
//     up_i = exp(G_i - G_m);  S' = exp(G_m) S                                     for each key; S: the state before
//     M_ij = beta_i (k_i up_i) . (k_j / up_j), j < i;    P_ij = (q_i up_i) . (k_j / up_j), j <= i
//     T = (1 + M)^-1;  y_i = v_i - S'^T (k_i up_i)
//     u = T diag(beta) y;  out_i = S'^T (q_i up_i) + P_i u;  S = exp(G_16 - G_m) (S' + (k / up)^T u)
//
// Because decays are relative to the middle, exponents are between -8 and 8 times the bound of a decay.
//
// In:    bf16 q, k, v after the convolution, float32 gates before their sigmoid; states in slots.
// Block: 64 columns of one head and sequence. Four warps update the state, four prepare groups, and one warp for each
//        of three tiles in shared memory solves them.
//        Preparing: a lane has four channels of four rows. It writes k up, q up and k / up, and sums of squares.
//        Solving:   computes M and P, inverts 1 + M by substitution in float32, and writes the matrices that turn y
//                   into u and into a part of the outputs. Norms of k and q are factors of these matrices and of y.
//        Updating:  a warp has 16 columns of the state, transposed, as sums of products [16 columns, 8 keys]. These
//                   registers are also left operands, and so are y and u, so that no warp waits for another one.
// Values: an operand is the sum of two bf16 values, about 16 bits; of their products the smallest one is left out.
// Bits:  see parts.cuh. A row that is out of range counts as zeros.
// Bytes: 64 KiB of state read and written for each head and sequence; q, k and gates of a head are read by two blocks.
#pragma once
#include "ptx/barrier.cuh"
#include "ptx/matrix.cuh"
#include "ptx/mma.cuh"
#include "ptx/named.cuh"
#include "ptx/turn.cuh"
#include "smxx/linear/parts.cuh"

constexpr i32 kGroupColumns = 64; // value columns per block
constexpr i32 kGroupTiles = 3;
constexpr i32 kUpdaters = 4, kPreparers = 4; // warps
constexpr i32 kGroupThreads = 32 * (kUpdaters + kPreparers + kGroupTiles);

// Elements between rows in shared memory. Rows have 16 bytes more than their values, so that the rows of a matrix are
// in different banks.
constexpr i32 kKeyStride = kDelta + 8, kValueStride = kGroupColumns + 8, kPairStride = kGroup + 8;

// Upper and lower parts of the values of 16 rows.
template <int Stride> struct SplitRows {
    u16 high[kGroup][Stride], low[kGroup][Stride];
};

struct __align__(16) GroupTile {
    SplitRows<kKeyStride> key_up, query_up, key_down; // k up, q up, k / up
    u16 v[kGroup][kValueStride];
    f32 to_middle[kDelta], to_end[kDelta]; // exp(G_m) and exp(G_16 - G_m)
    f32 squares[kPreparers][2][kGroup];    // sums of squares of k and of q over 32 channels
    f32 beta[kGroup];                      // before the sigmoid
    f32 scale[2][kGroup];                  // inverse norms of k and of q
    i32 row[kGroup];                       // rows of the pass; -1: out of range
    union {
        struct {
            f32 m[kGroup][kGroup + 4], p[kGroup][kGroup + 4]; // M and P, transposed
        } sums;
        struct {
            SplitRows<kPairStride> news, outs; // matrices that turn y into u and into outputs
        } ready;
    };
    i32 snapshot; // snapshot slot of the last row; -1: none
};

struct GroupStorage {
    GroupTile tiles[kGroupTiles];
};

// Named barriers of a tile: it is prepared; it is solved; its readers have finished.
enum TileEvent { kPrepared = 1, kSolved = kPrepared + kGroupTiles, kFree = kSolved + kGroupTiles };
constexpr i32 kPreparedThreads = 32 * (kPreparers + 1), kSolvedThreads = 32 * (kUpdaters + 1),
              kFreeThreads = 32 * (kUpdaters + kPreparers);

// Returns the upper parts of two values as bf16, and sets low to the rest.
DEVICE u32 split(f32 a, f32 b, u32& low) {
    const u32 high = pack_bf16_fast(a, b);
    low = pack_bf16_fast(__fsub_rn(a, bf16_low(high)), __fsub_rn(b, bf16_high(high)));
    return high;
}

// A left operand [16, 16], in two parts.
struct Operand {
    u32 high[4], low[4];

    // From sums of products: two tiles [16, 8] side by side.
    DEVICE Operand(const f32 (&left)[4], const f32 (&right)[4]) {
        high[0] = split(left[0], left[1], low[0]), high[1] = split(left[2], left[3], low[1]);
        high[2] = split(right[0], right[1], low[2]), high[3] = split(right[2], right[3], low[3]);
    }
    // From columns [column, column + 16) of 16 rows in shared memory. at: address plus the lane's offset (across).
    DEVICE Operand(u32 at, i32 column) {
        ptx::load_matrices(high, at + 2 * column);
        ptx::load_matrices(low, at + 2 * column + 2 * kGroup * kKeyStride);
    }
};

// A right operand [16, 16]: two adjacent tiles of eight columns, in two parts.
struct Fragments {
    u32 high[4], low[4];
};

// Offsets of the lane's row of matrices of eight by eight elements. along: of right operands whose rows in shared
// memory are columns of the product; across: of left operands, and of right operands whose rows in shared memory are
// summed.
template <int Stride> DEVICE u32 along() {
    const i32 lane = lane_id();
    return 2 * ((lane / 16 * 8 + lane % 8) * Stride + lane / 8 % 2 * 8);
}
template <int Stride> DEVICE u32 across() {
    const i32 lane = lane_id();
    return 2 * ((lane / 8 % 2 * 8 + lane % 8) * Stride + lane / 16 * 8);
}

// Loads columns [column, column + 16) of 16 rows. at: address of the upper parts plus the lane's offset.
template <int Stride> DEVICE Fragments load_along(u32 at, i32 column) {
    Fragments f;
    ptx::load_matrices(f.high, at + 2 * column);
    ptx::load_matrices(f.low, at + 2 * column + 2 * kGroup * Stride);
    return f;
}
template <int Stride> DEVICE Fragments load_across(u32 at, i32 column) {
    Fragments f;
    ptx::load_matrices_across(f.high, at + 2 * column);
    ptx::load_matrices_across(f.low, at + 2 * column + 2 * kGroup * Stride);
    return f;
}

// Adds a product to two tiles of sums: the product of the upper parts to large, products with a lower part to small.
DEVICE void add_product(f32 (&large)[2][4], f32 (&small)[2][4], const Operand& a, const Fragments& b) {
#pragma unroll
    for (int n = 0; n < 2; n++) ptx::multiply_16x8(large[n], a.high, b.high[2 * n], b.high[2 * n + 1]);
#pragma unroll
    for (int n = 0; n < 2; n++) ptx::multiply_16x8(small[n], a.low, b.high[2 * n], b.high[2 * n + 1]);
#pragma unroll
    for (int n = 0; n < 2; n++) ptx::multiply_16x8(small[n], a.high, b.low[2 * n], b.low[2 * n + 1]);
}

// The values of a group that a lane loads before it prepares them.
struct RawGroup {
    uint2 q[4], k[4], v[2];
    float4 gate[4];
    f32 beta;
    i32 row, snapshot;
};

// The lane's columns of a tensor. Strides are below 2^31 bytes.
struct LaneRows {
    const u8* base;
    i32 stride; // bytes
    template <class T>
    DEVICE LaneRows(const T* rows, i64 stride, i32 column)
        : base(reinterpret_cast<const u8*>(rows + column)), stride(static_cast<i32>(stride * sizeof(T))) {}
    template <class T> DEVICE const T* at(i32 row) const {
        return reinterpret_cast<const T*>(base + static_cast<i64>(row) * stride);
    }
};

// Lane 8 a + b of preparing warp w has channels 32 w + 4 b to + 3 of rows 4 a to 4 a + 3, in order of their distance
// from the middle of the group.
struct GroupPreparer {
    const DeltaArgs& a;
    const Span& s;
    i32 from; // first row of the first group
    i32 warp, lane, head, quarter, channel;
    LaneRows q, k, v, gate;
    bool upper;   // the lane's rows are after the middle
    f32 strength; // factor of a gate after the sigmoid, for powers of two
    f32 speed;    // factor of a gate before the sigmoid, and the lane's biases times this factor
    float4 bias;

    DEVICE GroupPreparer(const DeltaArgs& a, const Span& s, i32 from, i32 warp, i32 head, i32 first)
        : a(a), s(s), from(from), warp(warp), lane(lane_id()), head(head), quarter(lane / 8),
          channel(32 * warp + 4 * (lane % 8)), q(a.q, a.q_stride, head * kDelta + channel),
          k(a.k, a.k_stride, head * kDelta + channel), v(a.v, a.v_stride, head * kDelta + first + 8 * (lane % 8)),
          gate(a.gate, a.gate_stride, head * kDelta + channel), upper(quarter >= 2),
          strength(__fmul_rn(a.bound, kLog2E)), speed(__fmul_rn(expf(a.a_log[head]), kLog2E)) {
        const float4 b = *reinterpret_cast<const float4*>(a.bias + static_cast<i64>(head) * kDelta + channel);
        bias = make_float4(__fmul_rn(speed, b.x), __fmul_rn(speed, b.y), __fmul_rn(speed, b.z), __fmul_rn(speed, b.w));
    }

    DEVICE i32 row_of(i32 i) const { return 4 * quarter + (upper ? i : 3 - i); }

    // Returns the row of the pass of the lane's row of a group: lane l has row l % 16.
    DEVICE i32 listed(i32 group) const { return row_at(a.of, s, from + kGroup * group + lane % kGroup); }

    DEVICE RawGroup load(i32 row) const {
        RawGroup x{};
        x.row = row, x.snapshot = -1;
        i32 rows[5]; // the lane's rows of keys and gates, and its row of values
#pragma unroll
        for (int i = 0; i < 4; i++) rows[i] = __shfl_sync(ptx::kFullMask, row, row_of(i));
        rows[4] = __shfl_sync(ptx::kFullMask, row, 4 * warp + quarter);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (rows[i] < 0) continue;
            x.q[i] = *q.at<uint2>(rows[i]), x.k[i] = *k.at<uint2>(rows[i]), x.gate[i] = *gate.at<float4>(rows[i]);
        }
        if (rows[4] >= 0) x.v[0] = v.at<uint2>(rows[4])[0], x.v[1] = v.at<uint2>(rows[4])[1];
        if (warp == 0 && lane < kGroup && row >= 0) {
            x.beta = a.beta[row * a.beta_stride + head];
            x.snapshot = snapshot_at(a.of, row);
        }
        return x;
    }

    // Returns the logarithm, to base 2, of the decay of a channel.
    DEVICE f32 decay(f32 gate, f32 own) const {
        return __fmul_rn(strength, sigmoid_of_power(__fmaf_rn(speed, gate, own)));
    }

    DEVICE void prepare(GroupTile& t, const RawGroup& x) const {
        f32 g[4][4], total[4]; // logarithms of decays, and their sums over the lane's rows
#pragma unroll
        for (int i = 0; i < 4; i++) {
            g[i][0] = decay(x.gate[i].x, bias.x), g[i][1] = decay(x.gate[i].y, bias.y);
            g[i][2] = decay(x.gate[i].z, bias.z), g[i][3] = decay(x.gate[i].w, bias.w);
        }
        const bool outer = quarter == 0 || quarter == 3;
        f32 sum[4]; // of the decays between the middle and a row
        float4 half;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            total[c] = __fadd_rn(__fadd_rn(g[0][c], g[1][c]), __fadd_rn(g[2][c], g[3][c]));
            const f32 other = __shfl_xor_sync(ptx::kFullMask, total[c], 8);
            sum[c] = outer ? other : 0.0f;
            (&half.x)[c] = power_of_two(__fadd_rn(total[c], other));
        }
        if (quarter % 2 == 0) *reinterpret_cast<float4*>((upper ? t.to_end : t.to_middle) + channel) = half;
        f32 squares[8]; // of k, then of q
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const i32 row = row_of(i);
            const float4 q = widen_bf16x4(x.q[i]), k = widen_bf16x4(x.k[i]);
            squares[i] = dot_4(k, k), squares[4 + i] = dot_4(q, q);
            float4 up, down;
#pragma unroll
            for (int c = 0; c < 4; c++) {
                // A row before the middle is not decayed by its own gate on the way to the middle.
                const f32 before = sum[c];
                sum[c] = __fadd_rn(before, g[i][c]);
                const f32 e = upper ? sum[c] : -before;
                (&up.x)[c] = power_of_two(e), (&down.x)[c] = power_of_two(-e);
            }
            write(t.key_up, row, k, up);
            write(t.query_up, row, q, up);
            write(t.key_down, row, k, down);
        }
        write_squares(t, squares);
        const i32 row = 4 * warp + quarter, column = 8 * (lane % 8);
        *reinterpret_cast<uint4*>(&t.v[row][column]) = make_uint4(x.v[0].x, x.v[0].y, x.v[1].x, x.v[1].y);
        if (warp == 0 && lane < kGroup) {
            t.beta[lane] = x.beta, t.row[lane] = x.row;
            if (lane == kGroup - 1) t.snapshot = x.snapshot;
            else if (x.snapshot >= 0) raise_fault(a.of.faults, kFaultPosition); // states exist only after groups
        }
    }

private:
    DEVICE static f32 dot_4(float4 a, float4 b) {
        return __fmaf_rn(a.w, b.w, __fmaf_rn(a.z, b.z, __fmaf_rn(a.y, b.y, __fmul_rn(a.x, b.x))));
    }

    // Writes four values times their factors.
    DEVICE void write(SplitRows<kKeyStride>& to, i32 row, float4 v, float4 by) const {
        uint2 high, low;
        high.x = split(__fmul_rn(v.x, by.x), __fmul_rn(v.y, by.y), low.x);
        high.y = split(__fmul_rn(v.z, by.z), __fmul_rn(v.w, by.w), low.y);
        *reinterpret_cast<uint2*>(&to.high[row][channel]) = high;
        *reinterpret_cast<uint2*>(&to.low[row][channel]) = low;
    }

    // Adds the sums of squares of eight lanes. Each lane gives half of its sums to another lane, until it has one.
    DEVICE void write_squares(GroupTile& t, f32 (&v)[8]) const {
#pragma unroll
        for (int d = 4; d > 0; d /= 2) {
            const bool second = lane & d;
#pragma unroll
            for (int i = 0; i < d; i++) {
                const f32 give = second ? v[i] : v[i + d], keep = second ? v[i + d] : v[i];
                v[i] = __fadd_rn(keep, __shfl_xor_sync(ptx::kFullMask, give, d));
            }
        }
        t.squares[warp][lane / 4 % 2][row_of(lane % 4)] = v[0];
    }
};

// Solves a group: from its prepared rows, computes the matrices that turn y into u and into outputs.
DEVICE void solve_group(GroupTile& t) {
    constexpr f32 kScale = 0.08838834764831845f; // 128^-1/2
    const i32 lane = lane_id();
    f32 m[2][4] = {}, m_small[2][4] = {}, p[2][4] = {}, p_small[2][4] = {};
    const u32 keys = ptx::shared_address(&t.key_up) + across<kKeyStride>(),
              queries = ptx::shared_address(&t.query_up) + across<kKeyStride>(),
              down = ptx::shared_address(&t.key_down) + along<kKeyStride>();
#pragma unroll
    for (int c = 0; c < kDelta; c += 16) {
        const Fragments d = load_along<kKeyStride>(down, c);
        add_product(m, m_small, Operand(keys, c), d);
        add_product(p, p_small, Operand(queries, c), d);
    }
    // Lane l has the norm of k of row l, lane 16 + l that of q.
    const i32 kind = lane / kGroup, own = lane % kGroup;
    f32 squares = 1e-6f;
#pragma unroll
    for (int w = 0; w < kPreparers; w++) squares = __fadd_rn(squares, t.squares[w][kind][own]);
    const f32 norm = __fmul_rn(inverse_root_of(squares), kind == 0 ? 1.0f : kScale), beta = fast_sigmoid(t.beta[own]);
    t.scale[kind][own] = norm;
    const f32 strength = __fmul_rn(norm, beta); // lanes 0 to 15: of M
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const i32 i = lane / 4 + 8 * h;
        const f32 of_m = __shfl_sync(ptx::kFullMask, strength, i), of_p = __shfl_sync(ptx::kFullMask, norm, 16 + i);
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const i32 j = 8 * n + 2 * (lane % 4) + e, at = 2 * h + e;
                const f32 by = __shfl_sync(ptx::kFullMask, norm, j);
                const f32 mv = __fmul_rn(__fmul_rn(__fadd_rn(m[n][at], m_small[n][at]), by), of_m),
                          pv = __fmul_rn(__fmul_rn(__fadd_rn(p[n][at], p_small[n][at]), by), of_p);
                t.sums.m[j][i] = j < i ? mv : 0.0f;
                t.sums.p[j][i] = j <= i ? pv : 0.0f;
            }
        }
    }
    __syncwarp();
    // Lane l has column l % 16 of T, and of P T rows 0 to 7 or, from lane 16 on, 8 to 15.
    const i32 below = 8 * kind;
    f32 column[kGroup], out[8] = {};
#pragma unroll
    for (int i = 0; i < kGroup; i++) column[i] = i == own ? 1.0f : 0.0f;
#pragma unroll
    for (int l = 0; l < kGroup; l++) {
#pragma unroll
        for (int i = (l + 1) / 4 * 4; i < kGroup; i += 4) {
            const float4 v = *reinterpret_cast<const float4*>(&t.sums.m[l][i]);
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (i + e > l) column[i + e] = __fmaf_rn(-(&v.x)[e], column[l], column[i + e]);
        }
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            const float4 v = *reinterpret_cast<const float4*>(&t.sums.p[l][below + i]);
#pragma unroll
            for (int e = 0; e < 4; e++) out[i + e] = __fmaf_rn((&v.x)[e], column[l], out[i + e]);
        }
    }
    __syncwarp(); // the matrices replace M and P
    const auto write = [&](SplitRows<kPairStride>& to, i32 i, f32 a, f32 b) {
        u32 low;
        const u32 high = split(__fmul_rn(a, beta), __fmul_rn(b, beta), low);
        to.high[i][own] = static_cast<u16>(high), to.high[i + 1][own] = static_cast<u16>(high >> 16);
        to.low[i][own] = static_cast<u16>(low), to.low[i + 1][own] = static_cast<u16>(low >> 16);
    };
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
        const float2 by = *reinterpret_cast<const float2*>(&t.scale[0][below + i]);
        write(t.ready.news, below + i, __fmul_rn(by.x, kind == 0 ? column[i] : column[8 + i]),
              __fmul_rn(by.y, kind == 0 ? column[i + 1] : column[9 + i]));
        write(t.ready.outs, below + i, out[i], out[i + 1]);
    }
}

// The state of a warp's 16 columns, transposed. s[j] has keys 8 j to 8 j + 7: lane 4 c + t has columns c (elements 0
// and 1) and c + 8 (elements 2 and 3) of keys 8 j + 2 t and 8 j + 2 t + 1.
struct GroupState {
    static constexpr int kKeyTiles = kDelta / 8;
    f32 s[kKeyTiles][4];

    DEVICE static i64 place(i32 j, i32 e) { return (8 * j + e % 2) * kDelta + e / 2 * 8; }
    DEVICE void load(const f32* from) {
#pragma unroll
        for (int j = 0; j < kKeyTiles; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) s[j][e] = from[place(j, e)];
        }
    }
    DEVICE void store(f32* to) const {
#pragma unroll
        for (int j = 0; j < kKeyTiles; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) to[place(j, e)] = s[j][e];
        }
    }
    DEVICE void clear() {
#pragma unroll
        for (int j = 0; j < kKeyTiles; j++) s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0;
    }
    // Multiplies each key by its factor.
    DEVICE void scale(const f32* by) {
        const i32 key = 2 * (lane_id() % 4);
#pragma unroll
        for (int j = 0; j < kKeyTiles; j++) {
            const float2 f = *reinterpret_cast<const float2*>(by + 8 * j + key);
            s[j][0] = __fmul_rn(s[j][0], f.x), s[j][1] = __fmul_rn(s[j][1], f.y);
            s[j][2] = __fmul_rn(s[j][2], f.x), s[j][3] = __fmul_rn(s[j][3], f.y);
        }
    }

    // Updates the state with a group. out[n] has rows 8 n to 8 n + 7, in the order of a tile of s. column: first column
    // of the warp in the block.
    DEVICE void update(const GroupTile& t, i32 column, f32 (&out)[2][4]) {
        const i32 quad = lane_id() % 4;
        scale(t.to_middle);
        f32 known[2][4] = {}, known_small[2][4] = {}, out_small[2][4] = {};
#pragma unroll
        for (int n = 0; n < 2; n++) out[n][0] = out[n][1] = out[n][2] = out[n][3] = 0;
        const u32 offset = along<kKeyStride>();
        const u32 keys = ptx::shared_address(&t.key_up) + offset, queries = ptx::shared_address(&t.query_up) + offset;
#pragma unroll
        for (int j = 0; j < kKeyTiles; j += 2) {
            const Operand left(s[j], s[j + 1]);
            add_product(known, known_small, left, load_along<kKeyStride>(keys, 8 * j));
            add_product(out, out_small, left, load_along<kKeyStride>(queries, 8 * j));
        }
        u32 v[4]; // columns c of rows 0 to 7 and 8 to 15, then columns c + 8
        ptx::load_matrices_across(v, ptx::shared_address(&t.v) + across<kValueStride>() + 2 * column);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const float2 key = *reinterpret_cast<const float2*>(&t.scale[0][8 * n + 2 * quad]),
                         query = *reinterpret_cast<const float2*>(&t.scale[1][8 * n + 2 * quad]);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const f32 value = e % 2 == 0 ? bf16_low(v[n + e / 2 * 2]) : bf16_high(v[n + e / 2 * 2]);
                known[n][e] = __fmaf_rn(-(&key.x)[e % 2], __fadd_rn(known[n][e], known_small[n][e]), value);
                out[n][e] = __fmul_rn((&query.x)[e % 2], __fadd_rn(out[n][e], out_small[n][e]));
            }
        }
        const Operand y(known[0], known[1]);
        f32 news[2][4] = {}, news_small[2][4] = {}, more[2][4] = {};
        const u32 pairs = along<kPairStride>();
        add_product(news, news_small, y, load_along<kPairStride>(ptx::shared_address(&t.ready.news) + pairs, 0));
        add_product(out, more, y, load_along<kPairStride>(ptx::shared_address(&t.ready.outs) + pairs, 0));
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                news[n][e] = __fadd_rn(news[n][e], news_small[n][e]);
                out[n][e] = __fadd_rn(out[n][e], more[n][e]);
            }
        }
        const Operand u(news[0], news[1]);
        const u32 down = ptx::shared_address(&t.key_down) + across<kKeyStride>();
#pragma unroll
        for (int j = 0; j < kKeyTiles; j += 2) {
            const Fragments k = load_across<kKeyStride>(down, 8 * j);
#pragma unroll
            for (int n = 0; n < 2; n++) {
                ptx::multiply_16x8(s[j + n], u.low, k.high[2 * n], k.high[2 * n + 1]);
                ptx::multiply_16x8(s[j + n], u.high, k.low[2 * n], k.low[2 * n + 1]);
                ptx::multiply_16x8(s[j + n], u.high, k.high[2 * n], k.high[2 * n + 1]);
            }
        }
        scale(t.to_end);
    }
};

// Writes the outputs of 16 columns of a group. to: address of the first column of row 0.
DEVICE void write_group(const DeltaArgs& a, const i32 (&row)[kGroup], const f32 (&out)[2][4], u16* to) {
    const i32 lane = lane_id();
    u32 pairs[2][2];
#pragma unroll
    for (int n = 0; n < 2; n++) {
#pragma unroll
        for (int i = 0; i < 2; i++) pairs[n][i] = ptx::turn_matrix(pack_bf16_fast(out[n][2 * i], out[n][2 * i + 1]));
    }
#pragma unroll
    for (int n = 0; n < 2; n++) {
        const i32 r = row[8 * n + lane / 4];
        u16* at = to + r * a.out_stride + 2 * (lane % 4);
        if (r >= 0) *reinterpret_cast<u32*>(at) = pairs[n][0], *reinterpret_cast<u32*>(at + 8) = pairs[n][1];
    }
}

DEVICE void delta_groups_body(const DeltaArgs& a) {
    extern __shared__ __align__(16) u8 storage[];
    GroupTile* tiles = reinterpret_cast<GroupStorage*>(storage)->tiles;
    begin_after_previous();
    const i32 warp = threadIdx.x / 32, lane = lane_id();
    const i32 head = blockIdx.x >> 1, first = (blockIdx.x & 1) * kGroupColumns;
    const Span s = span_at(a.of, blockIdx.y);
    const Groups groups = groups_of(a, s, blockIdx.y);
    const i32 count = groups.count();
    if (count == 0) return;
    if (warp >= kUpdaters + kPreparers) {
        const i32 tile = warp - kUpdaters - kPreparers;
        for (i32 g = tile; g < count; g += kGroupTiles) {
            ptx::named_sync<kPreparedThreads>(kPrepared + tile);
            solve_group(tiles[tile]);
            ptx::named_arrive<kSolvedThreads>(kSolved + tile);
        }
        return;
    }
    i32 tile = 0;
    const auto next = [&] { tile = tile + 1 < kGroupTiles ? tile + 1 : 0; };
    if (warp >= kUpdaters) {
        const GroupPreparer p(a, s, groups.from, warp - kUpdaters, head, first);
        i32 listed = p.listed(0);
        RawGroup raw[2];
        raw[0] = p.load(listed);
        if (count > 1) listed = p.listed(1);
        // Loads the next group before it prepares this one.
        const auto step = [&](const RawGroup& now, RawGroup& later, i32 g) {
            if (g + 1 < count) later = p.load(listed);
            if (g + 2 < count) listed = p.listed(g + 2);
            if (g >= kGroupTiles) ptx::named_sync<kFreeThreads>(kFree + tile);
            p.prepare(tiles[tile], now);
            ptx::named_arrive<kPreparedThreads>(kPrepared + tile);
            next();
        };
        for (i32 g = 0; g < count; g += 2) {
            step(raw[0], raw[1], g);
            if (g + 1 < count) step(raw[1], raw[0], g + 1);
        }
        return;
    }
    const i32 column = 16 * warp;
    // Returns the address of the lane's first value in a state.
    const auto place = [&](f32* states, i32 slot) {
        return states + (static_cast<i64>(slot) * a.heads + head) * (kDelta * kDelta) +
               (2 * (lane % 4) * kDelta + first + column + lane / 4);
    };
    GroupState state;
    if (s.begins && groups.from == 0) state.clear();
    else state.load(place(a.state, s.slot));
    u16* out = a.out + static_cast<i64>(head) * kDelta + first + column;
    for (i32 g = 0; g < count; g++) {
        const GroupTile& t = tiles[tile];
        ptx::named_sync<kSolvedThreads>(kSolved + tile);
        f32 values[2][4];
        state.update(t, column, values);
        write_group(a, t.row, values, out);
        if (t.snapshot >= 0) state.store(place(a.kept, t.snapshot));
        if (g + kGroupTiles < count) ptx::named_arrive<kFreeThreads>(kFree + tile);
        next();
    }
    state.store(place(a.state, s.slot));
}
