// The gated activation of a feed-forward block. All kernels use this function, so that their results are bitwise equal.
#pragma once
#include "smxx/base.h"

// Returns silu(gate) * up. If limit is positive, gate is first clamped to at most limit, and up to [-limit, limit].
DEVICE f32 gated(f32 gate, f32 up, f32 limit) {
    if (limit > 0) {
        gate = fminf(gate, limit);
        up = fminf(fmaxf(up, -limit), limit);
    }
    return __fmul_rn(__fdividef(gate, __fadd_rn(1.0f, __expf(-gate))), up);
}
