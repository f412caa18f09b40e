// The gated activation of a feed-forward block, the same arithmetic wherever it is computed.
#pragma once
#include "smxx/base.h"

// silu(gate) * up. With a limit above zero, gate is first clamped to at most limit and up to within plus and minus
// limit.
DEVICE f32 gated(f32 gate, f32 up, f32 limit) {
    if (limit > 0) {
        gate = fminf(gate, limit);
        up = fminf(fmaxf(up, -limit), limit);
    }
    return __fmul_rn(__fdividef(gate, __fadd_rn(1.0f, __expf(-gate))), up);
}
