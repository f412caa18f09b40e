// The contents of a TensorMap field in a launch of a portable kernel: address, dimensions and strides of the tensor.
// Devices before Hopper have no copy engine for descriptors of the driver. Package cuda writes this struct
// (tensormap.go).
#pragma once

#include "ptx/types.h"

namespace portable {

struct PlainMap {
    const u8* base;
    u64 dims[5];     // elements per dimension, innermost first
    u64 strides[5];  // bytes between indices of dimensions 1 and up
};
static_assert(sizeof(PlainMap) <= sizeof(TensorMap), "a plain map takes the place of a tensor map");

__device__ __forceinline__ const PlainMap& plain(const TensorMap& map) {
    return *reinterpret_cast<const PlainMap*>(&map);
}

}  // namespace portable
