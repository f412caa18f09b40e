// Arguments of kernels that fuse two or more other kernels.
#pragma once
#include "smxx/compress/args.h"
#include "smxx/hyper/args.h"
#include "smxx/indexer/args.h"
#include "smxx/pick/args.h"
#include "smxx/quant/args.h"
#include "smxx/rope/args.h"
#include "smxx/v4/args.h"

struct PutFourArgs {
    PutArgs first; // no copy if it has 0 rows
    PutArgs second;
    PutArgs third;
    PutArgs fourth;
};

struct HeadTurnArgs {
    HeadNormArgs norm;
    RotateArgs rotate; // bf16 heads of norm; interleaved; offset and rope are multiples of 8; copy is null
};

struct QuantiseTurnedArgs {
    QuantiseRowsArgs quantise;
    RotateArgs rotate; // bf16; its heads are the rows of quantise; interleaved; sizes are multiples of 8; copy is null
};

struct HyperSumArgs {
    HyperPostArgs post;
    // Without a norm; its sum is the output of the sublayer that post adds, of post.hidden columns.
    NormQuantiseArgs sum;
};

struct PickFourArgs {
    PickArgs first; // no copy if it has 0 rows
    PickArgs second;
    PickArgs third;
    PickArgs fourth;
};

struct AngleFourArgs {
    AnglesArgs first; // no angles if it has 0 rows
    AnglesArgs second;
    AnglesArgs third;
    AnglesArgs fourth;
};

struct MixNormArgs {
    HyperMixArgs mix;      // four streams; all addresses and strides are aligned to 16 bytes
    NormQuantiseArgs norm; // norm of mix.out, which is not written; columns = mix.hidden, delta and results are null
};

// Independent parts of a layer: no part reads what another part writes. A part with zero blocks is skipped.
struct PartsArgs {
    NormQuantiseArgs norm; // at most 2048 columns; delta and results are null
    WriteV4Args entries;
    CompressArgs groups;
    CompressArgs keys;
    HeadTurnArgs heads;
    IndexQueryArgs queries;
    WriteIndexKeyArgs index;
    PutFourArgs puts;
    PickFourArgs picks;
    AngleFourArgs angles;
    // Numbers of thread blocks of the parts norm to index, in the order of the members.
    i32 norm_blocks;
    i32 entry_blocks;
    i32 group_blocks;
    i32 key_blocks;
    i32 head_blocks;
    i32 query_blocks;
    i32 index_blocks;
    i32 put_rows;     // largest number of rows of the four puts; each row takes four thread blocks, one for each put
    i32 pick_rows;    // the same for the four picks
    i32 angle_blocks; // largest number of thread blocks of the four angles, each of which takes that many
    i32 group_parts;  // thread blocks for each entry of groups
    i32 key_parts;    // thread blocks for each entry of keys
    i32 query_parts;  // thread blocks for each token of queries
};
