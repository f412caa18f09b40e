// Package plan decides, once per batch, how sparse attention runs.
//
// The inputs are a description of the hardware, the model and the user's settings (Resolve, once at start) and then the
// lengths of one scheduled batch (Build, once per step). The output is an immutable Plan: segments of rows, each with
// its form, kernel, cache layout, conversion, index transform, indexer path, launches, transient bytes, and the reasons
// for every choice together with the rejected candidates.
//
// Both functions are pure. The package never uses a device, a clock, the environment or a variable that outlives the
// call, and never modifies its Config or Batch. All other code reads the Plan and repeats none of its decisions.
//
// The catalogue "sparrow" lists the kernels of this project and plans in segments, so that the treatment of a row
// depends only on that row. Package plan/public holds a second one, "public", of the kernels of other engines: its
// plans are for explaining and are not run. Both choose kernels with Chooser and cut rows with Builder.
package plan
