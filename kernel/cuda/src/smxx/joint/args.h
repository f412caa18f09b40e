// Argument structs of kernels that fuse two or more other kernels.
#pragma once
#include "smxx/compress/args.h"
#include "smxx/hyper/args.h"
#include "smxx/indexer/args.h"
#include "smxx/pick/args.h"
#include "smxx/quant/args.h"
#include "smxx/rope/args.h"
#include "smxx/v4/args.h"

struct PutFourArgs {
    PutArgs first; // rows of 0: none
    PutArgs second;
    PutArgs third;
    PutArgs fourth;
};

struct HeadTurnArgs {
    HeadNormArgs norm;
    RotateArgs rotate; // bf16 heads of norm, interleaved, offset and rope multiples of 8, no copy
};

struct QuantiseTurnedArgs {
    QuantiseRowsArgs quantise;
    RotateArgs rotate; // bf16 heads that are the rows of quantise, interleaved, sizes multiples of 8, no copy
};

struct HyperSumArgs {
    HyperPostArgs post;
    NormQuantiseArgs sum; // without a norm: what is added up is the sublayer's output, of post.hidden columns
};

struct PickFourArgs {
    PickArgs first; // rows of 0: none
    PickArgs second;
    PickArgs third;
    PickArgs fourth;
};

struct AngleFourArgs {
    AnglesArgs first; // rows of 0: none
    AnglesArgs second;
    AnglesArgs third;
    AnglesArgs fourth;
};

struct MixNormArgs {
    HyperMixArgs mix;      // four streams, all of it aligned to 16 bytes
    NormQuantiseArgs norm; // of mix.out, which is not written: columns are mix.hidden, nothing is added
};

// Independent parts of a layer: none of them reads what another part writes. A part with zero blocks is skipped.
struct PartsArgs {
    NormQuantiseArgs norm; // at most 2048 columns, nothing is added
    WriteV4Args entries;
    CompressArgs groups;
    CompressArgs keys;
    HeadTurnArgs heads;
    IndexQueryArgs queries;
    WriteIndexKeyArgs index;
    PutFourArgs puts;
    PickFourArgs picks;
    AngleFourArgs angles;
    i32 norm_blocks; // how many each takes, in this order
    i32 entry_blocks;
    i32 group_blocks;
    i32 key_blocks;
    i32 head_blocks;
    i32 query_blocks;
    i32 index_blocks;
    i32 put_rows;     // of the longest: four blocks each
    i32 pick_rows;    // as put_rows
    i32 angle_blocks; // as put_rows
    i32 group_parts;  // blocks of an entry, also below
    i32 key_parts;
    i32 query_parts; // of a token
};
