#include "smxx/cache/gather.cuh"

KERNEL(kThreads) gather_slots_bf16(const __grid_constant__ GatherSlotsArgs a) { gather<ToBf16<Bf16Row>>(a); }
KERNEL(kThreads) gather_slots_block(const __grid_constant__ GatherSlotsArgs a) { gather<ToBf16<BlockRow>>(a); }
KERNEL(kThreads) gather_slots_raw(const __grid_constant__ GatherSlotsArgs a) { gather<ToBf16<RawRow>>(a); }
KERNEL(kThreads) raw_to_block_slots(const __grid_constant__ GatherSlotsArgs a) { gather<RawToBlock>(a); }

KERNEL(kThreads) gather_pages_bf16(const __grid_constant__ GatherPagesArgs a) { gather<ToBf16<Bf16Row>>(a); }
KERNEL(kThreads) gather_pages_block(const __grid_constant__ GatherPagesArgs a) { gather<ToBf16<BlockRow>>(a); }
KERNEL(kThreads) gather_pages_raw(const __grid_constant__ GatherPagesArgs a) { gather<ToBf16<RawRow>>(a); }
KERNEL(kThreads) raw_to_block_pages(const __grid_constant__ GatherPagesArgs a) { gather<RawToBlock>(a); }
