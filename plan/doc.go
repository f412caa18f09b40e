// Package plan decides, once per batch, how sparse attention runs.
//
// In flow a description of the hardware, the model and the user's wishes
// (Resolve, once at start) and then the lengths of one scheduled batch (Build,
// once per step). Out flows an immutable Plan: segments of rows, each with its
// form, kernel, cache layout, conversion, index transform, indexer path,
// launches, transient bytes, and the reasons for every choice together with the
// candidates that were turned down.
//
// Both functions are pure. The package never touches a device, a clock, the
// environment or a variable that outlives the call, and never writes to the
// Config or Batch it is handed. Everything downstream reads the Plan and
// repeats none of its tests.
//
// Two catalogues of kernels exist. The catalogue "sparrow" lists the kernels of
// this project and plans in segments, so that what happens to a row depends on
// that row alone. The catalogue "public" models the kernels of other engines
// and plans one form for a whole batch, as they do; its plans explain, they do
// not run, and package plan/public describes the arrays they would need.
package plan
