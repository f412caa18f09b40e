// Arguments of the kernel that compares drafts with the tokens that the target model chose.
#pragma once
#include "smxx/base.h"

struct AcceptArgs {
    const i32* tokens; // [token_count] tokens that the target model chose
    // [sequences, 1 + 2 * most]: place of the first token, then minimum and maximum token of each draft.
    const i32* drafts;
    // [rows, 3 + most]: place (-1-place: write the next token), sequence, word for 0 to most accepted drafts.
    const i32* words;
    i32* out;          // [columns]
    u32* faults;       // one word of fault bits, or null
    i64 token_stride;  // entries between tokens
    i32 rows;
    i32 columns;
    i32 token_count;
    i32 sequences;
    i32 most; // maximum drafts per sequence
    i32 reserved;
};
