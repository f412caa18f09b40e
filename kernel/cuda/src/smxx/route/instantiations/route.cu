#include "smxx/route/route.cuh"

KERNEL(kThreads) route_experts(const __grid_constant__ RouteArgs a) { route_body(a); }
