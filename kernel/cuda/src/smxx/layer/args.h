// Arguments of the kernels that do several small operations of a layer in one launch.
#pragma once
#include "smxx/cache/args.h"
#include "smxx/indexer/args.h"
#include "smxx/rope/args.h"
#include "smxx/rows/args.h"

struct StoreLatentArgs {
    WriteMainArgs rows;     // tokens = 0: no rows
    WriteIndexKeyArgs keys; // tokens = 0: no keys
    IndexQueryArgs queries; // tokens = 0: no queries
    i32 row_blocks;         // blocks of eight tokens
    i32 key_blocks;         // blocks of 32 tokens
    i32 head_blocks;        // blocks of 32 heads per token of the queries
    i32 reserved;
};

struct TurnArgs {
    RotateArgs rotate;
    LocateArgs locate;     // rows = 0: no positions
    i32 pair_blocks;       // blocks of 1024 pairs per row of rotate
    i32 reserved;
};
