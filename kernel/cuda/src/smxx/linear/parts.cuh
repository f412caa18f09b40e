// Division of a sequence's rows between the recurrent form of the delta rule and groups of 16 rows.
//
// A group has 16 adjacent positions, the first of which is a multiple of 16. If all rows of a group are in a pass, the
// group is computed at once (groups.cuh), otherwise row by row (delta.cuh). The results of a row are therefore bitwise
// equal for every division of its sequence into passes that begin and end at multiples of 16 or at the sequence's end.
// Rows that are held back, and rows after held-back rows, are always computed row by row.
#pragma once
#include "smxx/linear/sequences.cuh"

constexpr i32 kDelta = 128; // keys per head, and values per head
constexpr i32 kGroup = 16;  // rows of a group

// Rows [from, to) of a sequence in a pass form whole groups.
struct Groups {
    i32 from, to;
    DEVICE i32 count() const { return (to - from) / kGroup; }
};
DEVICE Groups groups_of(const DeltaArgs& a, const Span& s, i32 sequence) {
    if (a.first == nullptr || s.slot < 0 || s.holds || s.held > 0) return Groups{0, 0};
    const i32 from = -a.first[sequence] & (kGroup - 1);
    return s.rows < from + kGroup ? Groups{0, 0} : Groups{from, from + ((s.rows - from) & -kGroup)};
}

// Returns the rows of a sequence that a launch computes row by row. The launch for the rows before groups also computes
// held-back rows, and clears the state of a sequence that begins.
DEVICE Span recurrent_rows(const DeltaArgs& a, Span s, i32 sequence) {
    const Groups g = groups_of(a, s, sequence);
    const bool some = g.to > 0;
    if (a.part == kAfterGroups) {
        s.first += g.to;
        s.rows = some ? s.rows - g.to : 0;
        s.begins = false;
        s.held = 0;
    } else if (some) {
        s.rows = g.from;
        s.begins = s.begins && g.from > 0;
    }
    return s;
}
