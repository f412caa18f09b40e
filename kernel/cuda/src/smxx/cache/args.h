// Arguments of the kernels that write and gather the main cache.
#pragma once
#include "smxx/views.h"

struct WriteMainArgs {
    PoolView pool;
    RotaryView rotary;
    const u16* latent;    // bf16 [tokens, 512], already normalised if norm is null
    const u16* key;       // bf16 [tokens, 64], before rotation, pairs (2i, 2i+1)
    const i32* positions; // [tokens]
    const i32* slots;     // [tokens]; negative: do not write
    u32* faults;          // one word of fault bits, or null
    const f32* norm;      // f32 [512] weight of the RMSNorm of the latent, rounded to bf16; or null
    f64 epsilon;          // epsilon of the RMSNorm
    i64 latent_stride;    // elements between tokens, multiple of 8
    i64 key_stride;       // elements between tokens, multiple of 2
    i32 tokens;
    f32 k_scale;          // 576-byte rows only: scale of the pool; a stored code is value / k_scale
};

struct GatherSlotsArgs {
    PoolView pool;
    SlotListView source;
    u8* rows;       // [count] output rows
    u32* faults;    // one word of fault bits, or null
    i64 row_bytes;  // bytes between output rows, multiple of 16
    i32 count;
    f32 k_scale;    // 576-byte rows only
};

struct GatherPagesArgs {
    PoolView pool;
    PageTableView source;
    u8* rows;       // [count] output rows
    u32* faults;    // one word of fault bits, or null
    i64 row_bytes;  // bytes between output rows, multiple of 16
    i32 count;      // maximum rows to write; rows at or beyond starts[requests] are not written
    f32 k_scale;    // 576-byte rows only
};
