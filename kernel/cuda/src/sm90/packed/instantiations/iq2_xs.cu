// Matrix products with IQ2_XS weights.
#include "smxx/packed/decode_lattice.cuh"
#include "sm90/packed/product.cuh"

PACKED_KERNELS(iq2_xs, sparrow_packed::IQ2XS)
