// Expert matrix products with e2m1 weights whose scales are folded into e4m3, portable kernels.
#include "sm80/experts/stream.cuh"

PORTABLE_EXPERT_STREAM(portable_experts_gate_up_folded_few8, portable::FoldedWeights, false, 1, 4)
PORTABLE_EXPERT_STREAM(portable_experts_gate_up_folded_few16, portable::FoldedWeights, false, 2, 2)
PORTABLE_EXPERTS(portable_experts_gate_up_folded_many, portable::FoldedWeights, false, 2)
PORTABLE_EXPERT_STREAM(portable_experts_down_folded_few8, portable::FoldedWeights, true, 1, 4)
PORTABLE_EXPERT_STREAM(portable_experts_down_folded_few16, portable::FoldedWeights, true, 2, 2)
PORTABLE_EXPERTS(portable_experts_down_folded_many, portable::FoldedWeights, true, 2)
