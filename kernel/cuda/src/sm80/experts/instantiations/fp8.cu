// Products of fp8 experts of the portable tier.
#include "sm80/experts/experts.cuh"

PORTABLE_EXPERTS(portable_experts_gate_up_fp8_few, portable::PlainWeights<portable::Codes>, false, 1)
PORTABLE_EXPERTS(portable_experts_gate_up_fp8_many, portable::PlainWeights<portable::Codes>, false, 2)
PORTABLE_EXPERTS(portable_experts_down_fp8_few, portable::PlainWeights<portable::Codes>, true, 1)
PORTABLE_EXPERTS(portable_experts_down_fp8_many, portable::PlainWeights<portable::Codes>, true, 2)
