#include "smxx/select/scores.cuh"

KERNEL(kThreads) selected_scores(const __grid_constant__ SelectedScoresArgs a) { selected_scores_body(a); }
