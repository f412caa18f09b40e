// Matrix products of many rows with packed weights, by pairs of thread blocks that use the same tokens.
#include "sm90/packed/pair.cuh"
#include "smxx/packed/decode_any.cuh"

PACKED_PAIR(nvfp4, sparrow_packed::Nvfp4)
PACKED_PAIR(mxfp4, sparrow_packed::Mxfp4)
PACKED_PAIR(u4_g32, sparrow_packed::U4<4, false>)
PACKED_PAIR(u4_g128, sparrow_packed::U4<1, false>)
PACKED_PAIR(u4_g32_any, sparrow_packed::U4<4, true>)
PACKED_PAIR(u4_g128_any, sparrow_packed::U4OnSums)
PACKED_PAIR(i8_g32, sparrow_packed::I8<4, false>)
PACKED_PAIR(i8_g128, sparrow_packed::I8<1, false>)
PACKED_PAIR(i8_g32_any, sparrow_packed::I8<4, true>)
PACKED_PAIR(i8_g128_any, sparrow_packed::I8<1, true>)
PACKED_PAIR(e4m3_g32, sparrow_packed::E4m3<4, false>)
PACKED_PAIR(e4m3_g32_any, sparrow_packed::E4m3<4, true>)
PACKED_PAIR(e4m3_g128_any, sparrow_packed::E4m3<1, true>)
PACKED_PAIR(q4_k, sparrow_packed::Q4K)
PACKED_PAIR(q6_k, sparrow_packed::Q6K)
