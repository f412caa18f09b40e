// Matrix products with IQ3_S weights.
#include "smxx/packed/decode_lattice.cuh"
#include "sm90/packed/product.cuh"

PACKED_KERNELS_FINE(iq3_s, sparrow_packed::IQ3S)
