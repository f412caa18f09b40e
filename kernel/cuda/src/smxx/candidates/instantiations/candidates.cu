#include "smxx/candidates/candidates.cuh"

KERNEL(kThreads) candidate_parts(const __grid_constant__ CandidatesArgs a) { candidate_parts_body(a); }
KERNEL(kThreads) candidate_merge(const __grid_constant__ CandidatesArgs a) { candidate_merge_body(a); }
