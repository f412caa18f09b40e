// Argument struct of the kernel that compares drafts with the tokens that the target chose.
#pragma once
#include "smxx/base.h"

struct AcceptArgs {
    const i32* tokens; // [token_count]: what the target chose
    const i32* drafts; // [sequences, 1 + 2 * most]: place of the first token, least and greatest token of each draft
    const i32* words;  // [rows, 3 + most]: place (-1-place: for a token), sequence, word for 0 to most right drafts
    i32* out;          // [columns]
    u32* faults;       // one word of fault bits, or null
    i64 token_stride;  // entries between tokens
    i32 rows;
    i32 columns;
    i32 token_count;
    i32 sequences;
    i32 most; // drafts of a sequence
    i32 reserved;
};
