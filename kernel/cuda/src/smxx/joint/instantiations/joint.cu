#include "smxx/joint/joint.cuh"

KERNEL(kThreads) put_four(const __grid_constant__ PutFourArgs a) { put_four_body(a); }
KERNEL(kThreads) head_norm_turn(const __grid_constant__ HeadTurnArgs a) { head_turn_body(a); }
KERNEL(kThreads) quantise_turned(const __grid_constant__ QuantiseTurnedArgs a) { quantise_turned_body(a); }
KERNEL(kThreads) hyper_post_sum(const __grid_constant__ HyperSumArgs a) { hyper_sum_body(a); }
