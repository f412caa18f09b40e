#include "smxx/sample/sample.cuh"

KERNEL(kSampleThreads) sample_rows(const __grid_constant__ SampleArgs a) {
    begin_after_previous();
    sample_row<kSampleThreads>(a);
}
