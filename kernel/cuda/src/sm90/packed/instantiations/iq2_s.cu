// Matrix products with IQ2_S weights.
#include "smxx/packed/decode_lattice.cuh"
#include "sm90/packed/product.cuh"

PACKED_KERNELS(iq2_s, sparrow_packed::IQ2S)
