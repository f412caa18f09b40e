// The formats with tables in shared memory as portable kernels use them: each point is repeated over fewer bytes than
// in the Hopper kernels, because a block has less shared memory.
#pragma once

#include "sm80/packed/few.cuh"
#include "sm80/packed/many.cuh"
#include "smxx/packed/decode_lattice.cuh"

namespace sparrow_packed {

struct IQ2XXSNear : Lattice<1, 1, false, false, 64> {};
struct IQ2XSNear : Lattice<1, 1, true, true, 32> {};
struct IQ2SNear : Lattice<1, 1, true, true, 16> {};
struct IQ3XXSNear : Lattice<2, 2, false, false, 64> {};
struct IQ3SNear : Lattice<2, 8, true, false, 32> {};
struct IQ4Near : Pairs16<64> {};

template <>
struct Table<IQ2XXSNear> : PointTable<IQ2XXSNear, 256, kIQ2XXS> {};
template <>
struct Table<IQ2XSNear> : PointTable<IQ2XSNear, 512, kIQ2XS> {};
template <>
struct Table<IQ2SNear> : PointTable<IQ2SNear, 1024, kIQ2S> {};
template <>
struct Table<IQ3XXSNear> : PointTable<IQ3XXSNear, 256, kIQ3XXS> {};
template <>
struct Table<IQ3SNear> : PointTable<IQ3SNear, 512, kIQ3S> {};
template <>
struct Table<IQ4Near> : PairTable<IQ4Near> {};

}  // namespace sparrow_packed
