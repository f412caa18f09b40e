// Writes words that depend on the number of accepted drafts of a sequence. A draft is accepted if all drafts before it
// are accepted and the token that the target model chose is within the range of the draft. A negative place p stands
// for position -1-p, where the token that the target chose after the accepted drafts is written. A place, a sequence
// or a token out of range raises a fault, and nothing is written for that row.
//
// In:    tokens i32; drafts and words as in AcceptArgs, a few hundred rows.
// Out:   one word for each row of words.
// Block: 256 threads, one word per thread. Each thread compares all drafts of its sequence.
#pragma once
#include "smxx/accept/args.h"
#include "smxx/floats.cuh"

DEVICE void accept_body(const AcceptArgs& a) {
    begin_after_previous();
    const i32 row = blockIdx.x * kThreads + threadIdx.x;
    if (row >= a.rows) return;
    const i32* word = a.words + static_cast<i64>(row) * (3 + a.most);
    const bool next = word[0] < 0; // the word is the token after the accepted drafts
    const i32 place = next ? ~word[0] : word[0], sequence = word[1];
    if (place >= a.columns || sequence < 0 || sequence >= a.sequences) {
        raise_fault(a.faults, kFaultRow);
        return;
    }
    const i32* draft = a.drafts + static_cast<i64>(sequence) * (1 + 2 * a.most);
    const i32 first = draft[0];
    i32 right = 0;
    for (; right < a.most; right++) {
        const i32 least = draft[1 + 2 * right], greatest = draft[2 + 2 * right];
        if (least > greatest) break;
        if (first < 0 || first + right >= a.token_count) {
            raise_fault(a.faults, kFaultRow);
            return;
        }
        const i32 token = a.tokens[(first + right) * a.token_stride];
        if (token < least || token > greatest) break;
    }
    if (next && (first < 0 || first + right >= a.token_count)) {
        raise_fault(a.faults, kFaultRow);
        return;
    }
    a.out[place] = next ? a.tokens[(first + right) * a.token_stride] : word[2 + right];
}
