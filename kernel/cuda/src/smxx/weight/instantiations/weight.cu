#include "smxx/weight/merge.cuh"
#include "smxx/weight/widen.cuh"

KERNEL(kThreads) draw_values(const __grid_constant__ DrawArgs a) { draw_body(a); }
KERNEL(kThreads) widen_weight(const __grid_constant__ WidenArgs a) { widen_body(a); }
KERNEL(kThreads) merge_blocks(const __grid_constant__ MergeArgs a) { merge_body(a); }
