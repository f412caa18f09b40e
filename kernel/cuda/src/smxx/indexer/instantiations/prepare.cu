#include "smxx/indexer/prepare.cuh"

KERNEL(kThreads) write_index_key(const __grid_constant__ WriteIndexKeyArgs a) { write_index_key_body(a, blockIdx.x); }
KERNEL(kThreads) index_query(const __grid_constant__ IndexQueryArgs a) { index_query_body(a, blockIdx.x, blockIdx.y); }
KERNEL(kThreads) gather_index_slots(const __grid_constant__ GatherIndexSlotsArgs a) { gather_index(a); }
KERNEL(kThreads) gather_index_pages(const __grid_constant__ GatherIndexPagesArgs a) { gather_index(a); }
