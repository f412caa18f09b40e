// Arguments of the kernels for experts in host memory.
#pragma once
#include "smxx/base.h"

// An exchange with the worker threads on the host through page-locked memory (kernel.Mailbox in Go).
struct ExchangeArgs {
    const u16* x;            // bf16 [rows, hidden]
    const i32* ids;          // [rows, top] chosen experts; negative: none
    // [experts] place of each expert among the packed experts; -1: computed on the host; below -1: elsewhere.
    const i32* table;
    i32* places;             // [rows, top] table entry of each choice
    u16* results;            // bf16 [rows * top, hidden] result of each choice
    u32* words;              // host memory: words of the mailbox
    u16* mail_x;             // host memory: bf16 [rows, hidden], written for rows that chose an expert of the host
    i32* mail_ids;           // host memory: copy of ids, [rows, top]
    const u16* mail_results; // host memory: bf16 [rows * top, hidden] results of the experts of the host
    u32* state;              // three words: rounds, blocks that have arrived, fault; initially zero
    u32* faults;             // one word of fault bits, or null
    i64 x_stride;            // elements between rows of x
    i64 id_stride;           // entries between rows of ids
    i64 timeout;             // nanoseconds to wait for the workers
    i32 rows;
    i32 top;                 // at most 256
    i32 hidden;              // multiple of 8
    i32 experts;
    i32 layer;               // layer number, for the message
    i32 prompt;              // field of the message; 1: prompt rows
    float limit;             // limit of the activation, for the message
    i32 reserved;
};

// Converts expert choices to places, using a table of experts.
struct PlacesArgs {
    const i32* ids;   // [rows, top]
    const i32* table; // [experts] place of each expert; negative: none
    i32* places;      // [rows, top]
    u32* faults;      // one word of fault bits, or null
    i64 id_stride;    // entries between rows of ids
    i32 rows;
    i32 top;
    i32 experts;
    i32 reserved;
};

// Packed experts in host memory, which are copied to the device if a row has chosen them. The kernel that simulates a
// slower bus (Bus) uses the fields differently. to[0] then points to a u64 with the time until which this direction of
// the bus is busy, and to[1] to a u64 with the time until which this stream uses it, in nanoseconds of the device
// clock. bytes[0] is the duration of a slot in nanoseconds, or of the whole copy if places is null. reserved is 1 after
// a copy and 0 before it.
struct FetchArgs {
    const i32* places; // [pairs] slot that a choice needs; negative: none
    const u8* from[4]; // host memory: each of four tensors of packed experts, [slots, bytes]
    u8* to[4];         // device memory: four tensors of the shapes of from
    i64 bytes[4];      // bytes of a slot of each tensor: of the first two multiples of 16, of the others multiples of 8
    i32 pairs;
    i32 slots;
    i32 blocks;        // blocks that copy a slot
    i32 reserved;
};
