// Products of bf16 experts of the portable tier.
#include "sm80/experts/experts.cuh"

PORTABLE_EXPERTS(portable_experts_gate_up_bf16_few, portable::PlainWeights<portable::Bf16>, false, 1)
PORTABLE_EXPERTS(portable_experts_gate_up_bf16_many, portable::PlainWeights<portable::Bf16>, false, 4)
PORTABLE_EXPERTS(portable_experts_down_bf16_few, portable::PlainWeights<portable::Bf16>, true, 1)
PORTABLE_EXPERTS(portable_experts_down_bf16_many, portable::PlainWeights<portable::Bf16>, true, 4)
