// Products of e2m1 experts of the portable tier.
#include "sm80/experts/experts.cuh"

PORTABLE_EXPERTS(portable_experts_gate_up_e2m1_few, portable::E2m1Weights, false, 1)
PORTABLE_EXPERTS(portable_experts_gate_up_e2m1_many, portable::E2m1Weights, false, 4)
PORTABLE_EXPERTS(portable_experts_down_e2m1_few, portable::E2m1Weights, true, 1)
PORTABLE_EXPERTS(portable_experts_down_e2m1_many, portable::E2m1Weights, true, 4)
