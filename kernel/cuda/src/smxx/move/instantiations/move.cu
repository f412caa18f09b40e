#include "smxx/move/move.cuh"

KERNEL(kThreads) move_rows(const __grid_constant__ MoveArgs a) { move_body(a); }
