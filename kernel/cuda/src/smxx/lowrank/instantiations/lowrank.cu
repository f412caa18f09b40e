#include "smxx/lowrank/lowrank.cuh"

KERNEL(kThreads) low_rank_64(const __grid_constant__ LowRankArgs a) { low_rank_body<2>(a); }
KERNEL(kThreads) low_rank_256(const __grid_constant__ LowRankArgs a) { low_rank_body<8>(a); }
KERNEL(kThreads) low_rank_512(const __grid_constant__ LowRankArgs a) { low_rank_body<16>(a); }
