#include "smxx/cache/nope.cuh"

KERNEL(kThreads) write_nope_bf16(const __grid_constant__ WriteMainArgs a) { write_nope<NopeBf16Row>(a); }
KERNEL(kThreads) write_nope_block(const __grid_constant__ WriteMainArgs a) { write_nope<NopeBlockRow>(a); }
KERNEL(kThreads) gather_slots_nope_bf16(const __grid_constant__ GatherSlotsArgs a) {
    gather<NopeToBf16<NopeBf16Row>>(a);
}
KERNEL(kThreads) gather_slots_nope_block(const __grid_constant__ GatherSlotsArgs a) {
    gather<NopeToBf16<NopeBlockRow>>(a);
}
