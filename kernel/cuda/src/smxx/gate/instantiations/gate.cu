#include "smxx/gate/gate.cuh"

KERNEL(kThreads) gate_rows(const __grid_constant__ GateArgs a) { gate_body(a); }
