// Argument structs of kernels that do what two or four others do.
#pragma once
#include "smxx/hyper/args.h"
#include "smxx/pick/args.h"
#include "smxx/quant/args.h"
#include "smxx/rope/args.h"

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
