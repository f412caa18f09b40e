// Arguments of the kernel that adds a sublayer's output to four residual streams and computes the input of the next
// sublayer.
#pragma once
#include "ptx/types.h"
#include "smxx/joint/args.h"

struct alignas(64) HyperStepArgs {
    TensorMap weight_map; // bf16 [24, 4 * hidden]: the matrix whose product with the streams is mix
    HyperSumArgs add;     // if add.sum.results is null, only add.post is computed
    MixNormArgs step;     // of the streams that add.post writes; mix.mix is not read, next and carried are null
};
static_assert(sizeof(HyperStepArgs) == 768, "mirrored in Go");

// Arguments of the kernel that adds a sublayer's output to four residual streams and multiplies the streams.
struct alignas(64) HyperManyArgs {
    TensorMap weight_map; // bf16 [columns, 4 * hidden]: the matrix of the next sublayer, columns 24 to 32
    HyperSumArgs add;     // if add.sum.results is null, only add.post is computed
    f32* out;             // [rows, columns] product of the streams
    i64 out_stride;       // elements between rows of out
    i32 columns;          // multiple of 8
    i32 reserved;
};
static_assert(sizeof(HyperManyArgs) == 448, "mirrored in Go");
