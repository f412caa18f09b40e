#include "smxx/collective/collective.cuh"

KERNEL(kThreads) all_reduce_once(const __grid_constant__ AllReduceArgs a) { all_reduce_once_body(a); }
KERNEL(kThreads) all_reduce_twice(const __grid_constant__ AllReduceArgs a) { all_reduce_twice_body(a); }
