// Packing of lattice types.
#include "sm90/packed/pack_lattice.cuh"

PACKED_PACK(iq2_xxs, sparrow_packed::IQ2XXS)
PACKED_PACK(iq3_xxs, sparrow_packed::IQ3XXS)
