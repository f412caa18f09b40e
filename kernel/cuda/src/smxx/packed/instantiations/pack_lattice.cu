// Packs weights of the lattice types and of IQ4.
#include "smxx/packed/pack_lattice.cuh"

PACKED_PACK(iq2_xxs, sparrow_packed::IQ2XXS)
PACKED_PACK(iq2_xs, sparrow_packed::IQ2XS)
PACKED_PACK(iq2_s, sparrow_packed::IQ2S)
PACKED_PACK(iq3_xxs, sparrow_packed::IQ3XXS)
PACKED_PACK(iq3_s, sparrow_packed::IQ3S)
PACKED_PACK(iq4, sparrow_packed::IQ4)
