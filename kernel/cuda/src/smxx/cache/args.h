// Argument structs of the kernels that write and gather the main cache.
#pragma once
#include "smxx/views.h"

struct WriteMainArgs {
    PoolView pool;
    RotaryView rotary;
    const u16* latent;    // bf16 [tokens, 512], normalised unless there is a norm
    const u16* key;       // bf16 [tokens, 64], before rotation, pairs (2i, 2i+1)
    const i32* positions; // [tokens]
    const i32* slots;     // [tokens]; negative: do not write
    u32* faults;          // one word of fault bits, or null
    const f32* norm;      // f32 [512]: the weight of the RMSNorm of the latent, rounded to bf16; or null
    f64 epsilon;          // of the norm
    i64 latent_stride;    // elements between tokens, multiple of 8
    i64 key_stride;       // elements between tokens, multiple of 2
    i32 tokens;
    f32 k_scale;          // 576-byte rows only: what a stored value is multiplied by
};

struct GatherSlotsArgs {
    PoolView pool;
    SlotListView source;
    u8* rows;       // [count] output rows
    u32* faults;    // one word of fault bits, or null
    i64 row_bytes;  // between output rows, multiple of 16
    i32 count;
    f32 k_scale;    // 576-byte rows only
};

struct GatherPagesArgs {
    PoolView pool;
    PageTableView source;
    u8* rows;       // [count] output rows
    u32* faults;    // one word of fault bits, or null
    i64 row_bytes;  // between output rows, multiple of 16
    i32 count;      // most rows to write; those at or beyond starts[requests] are left alone
    f32 k_scale;    // 576-byte rows only
};
