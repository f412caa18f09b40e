#include "smxx/v41/engram.cuh"
#include "smxx/v41/score.cuh"
#include "smxx/v41/write.cuh"

KERNEL(kThreads) write_v41_window(const __grid_constant__ WriteV4Args a) { write_v41_body<true>(a); }
KERNEL(kThreads) write_v41_entry(const __grid_constant__ WriteV4Args a) { write_v41_body<false>(a); }
KERNEL(kThreads) write_key_v41(const __grid_constant__ WriteIndexKeyArgs a) { write_key_v41_body(a); }
KERNEL(kThreads) query_v41(const __grid_constant__ IndexQueryArgs a) { query_v41_body(a); }
extern "C" __global__ void __launch_bounds__(kThreads, 2) score_v41(const __grid_constant__ ScoreV41Args a) {
    score_v41_body(a);
}
KERNEL(kThreads) block_max(const __grid_constant__ BlockMaxArgs a) { block_max_body(a); }
KERNEL(kThreads) engram(const __grid_constant__ EngramArgs a) { engram_body(a); }
KERNEL(kThreads) read_table(const __grid_constant__ ReadTableArgs a) { read_table_body(a); }
KERNEL(kThreads) collapse(const __grid_constant__ CollapseArgs a) { collapse_body(a); }
