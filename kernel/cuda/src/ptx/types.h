// Names of fixed-width integer types for device code. The run-time compiler has no <cstdint>.
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

static_assert(sizeof(u32) == 4 && sizeof(u64) == 8 && sizeof(void*) == 8, "kernels assume a 64-bit device ABI");

// TensorMap holds the 128 bytes that cuTensorMapEncodeTiled writes. It is a field of a __grid_constant__ argument
// struct, where the copy engine requires an alignment of 64 bytes.
struct alignas(64) TensorMap {
    u64 words[16];
};
static_assert(sizeof(TensorMap) == 128, "CUtensorMap is 128 bytes");
