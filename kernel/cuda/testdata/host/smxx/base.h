// Replaces src/smxx/base.h if a C++ compiler of the host builds a kernel. A block runs on one host thread. Its GPU
// threads are coroutines, which switch when they wait for each other, in another order every time.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <vector>

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;
using f32 = float;
using f64 = double;
using std::max;
using std::min;

#define DEVICE inline
#define __shared__ static

struct Place {
    u32 x, y, z;
};
inline Place threadIdx, blockIdx;
inline i32 lane_id() { return threadIdx.x & 31; }

namespace ptx {
constexpr u32 kFullMask = 0xFFFFFFFFu;
}

// The block that is running.
struct Block {
    struct Gate {
        int arrived = 0, passed = 0;
    };
    int threads = 0;
    std::vector<ucontext_t> contexts;
    std::vector<char> ended;
    std::vector<std::vector<char>> stacks;
    std::vector<Gate> warps;
    std::vector<u64> exchanged;
    Gate all;
    ucontext_t scheduler;
    void (*body)() = nullptr;

    static void enter();
    void give_way() { swapcontext(&contexts[threadIdx.x], &scheduler); }
    void wait(Gate& g, int n) {
        int passed = g.passed;
        if (++g.arrived == n) {
            g.arrived = 0;
            g.passed++;
            return;
        }
        while (g.passed == passed) give_way();
    }
    void run(int n, void (*f)()) {
        threads = n, body = f, all = Gate{};
        contexts.resize(n), stacks.resize(n), exchanged.resize(n);
        ended.assign(n, 0), warps.assign(n / 32, Gate{});
        for (int t = 0; t < n; t++) {
            stacks[t].resize(64 << 10);
            getcontext(&contexts[t]);
            contexts[t].uc_stack.ss_sp = stacks[t].data();
            contexts[t].uc_stack.ss_size = stacks[t].size();
            contexts[t].uc_link = &scheduler;
            makecontext(&contexts[t], enter, 0);
        }
        u32 order = 1;
        for (int left = n; left > 0;) {
            order = order * 1664525u + 1013904223u;
            int first = order >> 16, step = order >> 15 & 1 ? 1 : n - 1;
            for (int i = 0; i < n; i++) {
                int t = (first + i64(i) * step) % n;
                if (ended[t]) continue;
                threadIdx.x = t;
                swapcontext(&scheduler, &contexts[t]);
                left -= ended[t];
            }
        }
    }
};
inline Block block;
inline void Block::enter() {
    block.body();
    block.ended[threadIdx.x] = 1;
}

inline void __syncthreads() { block.wait(block.all, block.threads); }
inline u64 __shfl_xor_sync(u32, u64 v, int d) {
    u32 t = threadIdx.x;
    block.exchanged[t] = v;
    block.wait(block.warps[t / 32], 32);
    v = block.exchanged[t ^ d];
    block.wait(block.warps[t / 32], 32);
    return v;
}
template <class T> T atomicAdd(T* to, T v) {
    T before = *to;
    *to = before + v;
    return before;
}

inline u32 __float_as_uint(f32 v) {
    u32 b;
    memcpy(&b, &v, 4);
    return b;
}
inline f32 __int_as_float(u32 b) {
    f32 v;
    memcpy(&v, &b, 4);
    return v;
}
inline f64 __dadd_rn(f64 a, f64 b) { return a + b; }
inline f64 __dsub_rn(f64 a, f64 b) { return a - b; }
inline f64 __dmul_rn(f64 a, f64 b) { return a * b; }
inline i32 __double2int_rz(f64 v) { return i32(v); }
inline i64 __double2ll_rz(f64 v) { return i64(v); }
inline i64 __double2ll_ru(f64 v) { return i64(ceil(v)); }
inline f64 __ll2double_rn(i64 v) { return f64(v); }
inline u64 __umul64hi(u64 a, u64 b) { return u64((unsigned __int128)(a)*b >> 64); }
