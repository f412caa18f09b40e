// Arguments of the kernel that counts expert choices.
#pragma once
#include "smxx/base.h"

struct TallyArgs {
    u32* counts;     // [experts] incremented once per choice
    const i32* ids;  // [rows, top] expert of each choice
    const i32* seen; // [rows] number of visible tokens of a row; rows without tokens are padding
    u32* faults;     // one word of fault bits, or null
    i64 id_stride;   // entries between rows of ids; the following strides are also in entries
    i64 seen_stride;
    i32 rows;
    i32 top;
    i32 experts;
};
