// Argument struct of the kernel that counts expert choices.
#pragma once
#include "smxx/base.h"

struct TallyArgs {
    u32* counts;     // [experts]: grow by one for each choice
    const i32* ids;  // [rows, top]
    const i32* seen; // [rows]: tokens that a row sees; rows that see none are padding
    u32* faults;     // one word of fault bits, or null
    i64 id_stride;   // elements between rows, also below
    i64 seen_stride;
    i32 rows;
    i32 top;
    i32 experts;
};
