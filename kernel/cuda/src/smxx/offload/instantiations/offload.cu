#include "smxx/offload/offload.cuh"

KERNEL(kThreads) offload_post(const __grid_constant__ ExchangeArgs a) { offload_post_body(a); }
KERNEL(32) offload_wait(const __grid_constant__ ExchangeArgs a) { offload_wait_body(a); }
KERNEL(kThreads) offload_take(const __grid_constant__ ExchangeArgs a) { offload_take_body(a); }
KERNEL(kThreads) offload_places(const __grid_constant__ PlacesArgs a) { offload_places_body(a); }
KERNEL(kThreads) offload_fetch(const __grid_constant__ FetchArgs a) { offload_fetch_body(a); }
KERNEL(kThreads) offload_bus(const __grid_constant__ FetchArgs a) { offload_bus_body(a); }
