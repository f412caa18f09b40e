// Packing of all formats.
#include "sm90/packed/pack.cuh"

PACKED_PACK(nvfp4, sparrow_packed::Nvfp4)
PACKED_PACK(mxfp4, sparrow_packed::Mxfp4)
PACKED_PACK(u4_g128, sparrow_packed::U4<1, false>)
PACKED_PACK(u4_g32, sparrow_packed::U4<4, false>)
PACKED_PACK(u4_g128_any, sparrow_packed::U4<1, true>)
PACKED_PACK(u4_g32_any, sparrow_packed::U4<4, true>)
PACKED_PACK(i8_g128, sparrow_packed::I8<1, false>)
PACKED_PACK(i8_g32, sparrow_packed::I8<4, false>)
PACKED_PACK(i8_g128_any, sparrow_packed::I8<1, true>)
PACKED_PACK(i8_g32_any, sparrow_packed::I8<4, true>)
PACKED_PACK(e4m3_g32, sparrow_packed::E4m3<4, false>)
PACKED_PACK(e4m3_g128_any, sparrow_packed::E4m3<1, true>)
PACKED_PACK(e4m3_g32_any, sparrow_packed::E4m3<4, true>)
PACKED_PACK(q4_k, sparrow_packed::Q4K)
PACKED_PACK(q2_k, sparrow_packed::Q2K)
