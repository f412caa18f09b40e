// Argument structs of the kernels that do several small operations of a layer in one launch.
#pragma once
#include "smxx/cache/args.h"
#include "smxx/indexer/args.h"
#include "smxx/rope/args.h"
#include "smxx/rows/args.h"

struct StoreLatentArgs {
    WriteMainArgs rows;     // tokens 0: none
    WriteIndexKeyArgs keys; // tokens 0: none
    IndexQueryArgs queries; // tokens 0: none
    i32 row_blocks;         // of eight tokens
    i32 key_blocks;         // of 32 tokens
    i32 head_blocks;        // of 32 heads, for each token of the queries
    i32 reserved;
};

struct TurnArgs {
    RotateArgs rotate;
    LocateArgs locate;     // rows 0: none
    i32 pair_blocks;       // of 1024 pairs, for each row of rotate
    i32 reserved;
};
