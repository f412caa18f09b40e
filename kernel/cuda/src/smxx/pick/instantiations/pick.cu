#include "smxx/pick/pick.cuh"

KERNEL(kThreads) pick_rows(const __grid_constant__ PickArgs a) { pick_body(a); }
