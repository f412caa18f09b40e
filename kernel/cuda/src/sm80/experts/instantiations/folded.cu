// Products of folded experts of the portable tier.
#include "sm80/experts/experts.cuh"

PORTABLE_EXPERTS(portable_experts_gate_up_folded_few, portable::FoldedWeights, false, 1)
PORTABLE_EXPERTS(portable_experts_gate_up_folded_many, portable::FoldedWeights, false, 2)
PORTABLE_EXPERTS(portable_experts_down_folded_few, portable::FoldedWeights, true, 1)
PORTABLE_EXPERTS(portable_experts_down_folded_many, portable::FoldedWeights, true, 2)
