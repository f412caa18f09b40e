#include "smxx/collective/collective.cuh"

KERNEL(kThreads) all_reduce_once(const __grid_constant__ AllReduceArgs a) { all_reduce_once_body(a); }
KERNEL(kThreads) all_reduce_twice(const __grid_constant__ AllReduceArgs a) { all_reduce_twice_body(a); }
KERNEL(kThreads) gather_ranks(const __grid_constant__ GatherRanksArgs a) { gather_ranks_body(a); }
KERNEL(kThreads) reduce_scatter(const __grid_constant__ ReduceScatterArgs a) { reduce_scatter_body(a); }
KERNEL(kThreads) part_ids(const __grid_constant__ PartIdsArgs a) { part_ids_body(a); }
