#include "smxx/gate/gate.cuh"

KERNEL(kThreads) gate_rows(const __grid_constant__ GateArgs a) { gate_body(a); }
KERNEL(kThreads) gate_quantise(const __grid_constant__ GateQuantiseArgs a) { gate_quantise_body(a); }
