// Expert matrix products with bf16 weights, portable kernels.
#include "sm80/experts/stream.cuh"

PORTABLE_EXPERT_STREAM(portable_experts_gate_up_bf16_few8, portable::PlainWeights<portable::Bf16>, false, 1, 4)
PORTABLE_EXPERT_STREAM(portable_experts_gate_up_bf16_few16, portable::PlainWeights<portable::Bf16>, false, 2, 2)
PORTABLE_EXPERTS(portable_experts_gate_up_bf16_many, portable::PlainWeights<portable::Bf16>, false, 4)
PORTABLE_EXPERT_STREAM(portable_experts_down_bf16_few8, portable::PlainWeights<portable::Bf16>, true, 1, 4)
PORTABLE_EXPERT_STREAM(portable_experts_down_bf16_few16, portable::PlainWeights<portable::Bf16>, true, 2, 2)
PORTABLE_EXPERTS(portable_experts_down_bf16_many, portable::PlainWeights<portable::Bf16>, true, 4)
