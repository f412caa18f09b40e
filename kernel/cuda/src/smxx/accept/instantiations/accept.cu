#include "smxx/accept/accept.cuh"

KERNEL(kThreads) accept_drafts(const __grid_constant__ AcceptArgs a) { accept_body(a); }
