#include "smxx/linear/groups.cuh"

extern "C" __device__ const u32 delta_groups_shared = sizeof(GroupStorage);
extern "C" __global__ void __launch_bounds__(kGroupThreads, 1) delta_groups(const __grid_constant__ DeltaArgs a) {
    delta_groups_body(a);
}
