#include "smxx/layer/layer.cuh"

KERNEL(kThreads) store_latent_bf16(const __grid_constant__ StoreLatentArgs a) { store_latent<Bf16Row>(a); }
KERNEL(kThreads) store_latent_block(const __grid_constant__ StoreLatentArgs a) { store_latent<BlockRow>(a); }
KERNEL(kThreads) store_latent_raw(const __grid_constant__ StoreLatentArgs a) { store_latent<RawRow>(a); }
KERNEL(kThreads) turn_and_locate(const __grid_constant__ TurnArgs a) { turn(a); }
