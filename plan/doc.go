// Package plan decides, once per batch, how sparse attention runs.
//
// The inputs of Resolve, called once at start, are descriptions of the hardware, the model and the user's settings. The
// input of Build, called for each step, is the lengths of one scheduled batch. The output is an immutable Plan:
// segments of rows, each with its form, kernel, cache layout, conversion, index transform, indexer path, launches,
// transient bytes, and the reasons for every choice together with the rejected candidates.
//
// Both functions are pure. They use no device, clock, environment or global variable, and do not modify their Config or
// Batch. All other code reads the Plan and repeats none of its decisions.
//
// The catalogue "sparrow" lists the kernels of this project and plans in segments, so that the treatment of a row
// depends only on that row. Package plan/public holds a second catalogue, "public", of the kernels of other engines:
// its plans are printed but not run. Both catalogues are used by Chooser, which chooses kernels, and by Builder, which
// cuts rows into launches.
package plan
