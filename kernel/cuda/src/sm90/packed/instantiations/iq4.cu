// Matrix products with IQ4_XS and IQ4_NL weights.
#include "smxx/packed/decode_lattice.cuh"
#include "sm90/packed/product.cuh"

PACKED_KERNELS(iq4, sparrow_packed::IQ4)
