// Expert matrix products with fp8 weights, portable kernels.
#include "sm80/experts/stream.cuh"

PORTABLE_EXPERT_STREAM(portable_experts_gate_up_fp8_few8, portable::PlainWeights<portable::Codes>, false, 1, 2)
PORTABLE_EXPERT_STREAM(portable_experts_gate_up_fp8_few16, portable::PlainWeights<portable::Codes>, false, 2, 2)
PORTABLE_EXPERTS(portable_experts_gate_up_fp8_many, portable::PlainWeights<portable::Codes>, false, 2)
PORTABLE_EXPERT_STREAM(portable_experts_down_fp8_few8, portable::PlainWeights<portable::Codes>, true, 1, 2)
PORTABLE_EXPERT_STREAM(portable_experts_down_fp8_few16, portable::PlainWeights<portable::Codes>, true, 2, 2)
PORTABLE_EXPERTS(portable_experts_down_fp8_many, portable::PlainWeights<portable::Codes>, true, 2)
