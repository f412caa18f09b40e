// Gathers the quantised rows by expert, before the products of many rows.
#include "sm90/experts/gather.cuh"

KERNEL(kThreads) sparrow_experts_gather(const __grid_constant__ ExpertsArgs args) { sparrow_experts::gather(args); }
