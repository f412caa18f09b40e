// Expert matrix products with e2m1 weights, portable kernels.
#include "sm80/experts/stream.cuh"

PORTABLE_EXPERT_STREAM(portable_experts_gate_up_e2m1_few8, portable::E2m1Weights, false, 1, 4)
PORTABLE_EXPERT_STREAM(portable_experts_gate_up_e2m1_few16, portable::E2m1Weights, false, 2, 2)
PORTABLE_EXPERTS(portable_experts_gate_up_e2m1_many, portable::E2m1Weights, false, 4)
PORTABLE_EXPERT_STREAM(portable_experts_down_e2m1_few8, portable::E2m1Weights, true, 1, 4)
PORTABLE_EXPERT_STREAM(portable_experts_down_e2m1_few16, portable::E2m1Weights, true, 2, 2)
PORTABLE_EXPERTS(portable_experts_down_e2m1_many, portable::E2m1Weights, true, 4)
