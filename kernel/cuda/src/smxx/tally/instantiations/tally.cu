#include "smxx/tally/tally.cuh"

KERNEL(kThreads) tally_choices(const __grid_constant__ TallyArgs a) { tally_body(a); }
