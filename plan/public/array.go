// Package public makes plans by the rules of other engines, with a catalogue of their kernels: one form for a whole
// batch (dispatch 2 to 18).
//
// The inputs are the hardware, a model, a policy of its own and a batch. The outputs are plans with their reasons, and
// the names, shapes and contents of the per-batch arrays that those kernels read (dispatch 11), for explain to print.
// These plans are never run: package plan decides what this engine runs.
package public

import "sparrow/plan"

// ArrayName names a per-batch array by its usual name in those engines.
type ArrayName string

// Shapes: B requests, R rows, W table width in tokens, P page size in tokens. All arrays are int32.
const (
	CacheSeqlens    ArrayName = "cache_seqlens"     // [B] keys per request after this step
	CuSeqlensK      ArrayName = "cu_seqlens_k"      // [B+1] prefix sums of cache_seqlens
	CuSeqlensQ      ArrayName = "cu_seqlens_q"      // [B+1] query offsets; in decode-like batches [R+1] numbers 0 to R
	PageTable1      ArrayName = "page_table_1"      // [B or R, W] cache slot of each position
	RealPageTable   ArrayName = "real_page_table"   // [B or R, W/P] one page id per page
	PageTableFlat   ArrayName = "page_table_flat"   // [sum of keys] slots of the keys to gather
	TopKOffset      ArrayName = "topk_offset"       // [R] first gathered row of the row's request
	SeqlensExpanded ArrayName = "seqlens_expanded"  // [R] keys visible to the row
	DSACacheSeqlens ArrayName = "dsa_cache_seqlens" // [R padded] keys that the row attends to, at most K, 0 for padding
	DSACuK          ArrayName = "dsa_cu_k"          // [R padded + 1] prefix sums of dsa_cache_seqlens
	DSACuQ          ArrayName = "dsa_cu_q"          // [R padded + 1] numbers from 0
	KStart          ArrayName = "k_start"           // [R] first gathered index key of the row's request
	KEnd            ArrayName = "k_end"             // [R] KStart + keys visible to the row
	TokenToRequest  ArrayName = "token_to_request"  // [R] index into Batch.Requests
	SplitMetadata   ArrayName = "split_metadata"    // [parts, 8] schedule of the split attention kernel
	NumSplits       ArrayName = "num_splits"        // [R+1] prefix sums of the number of splits of each row
	CtxLens2D       ArrayName = "ctx_lens_2d"       // index keys: [B, n] for the native kernel, [R, 1] for split rows
	PagedSchedule   ArrayName = "paged_schedule"    // [SMs+1, 2] row and split at which each multiprocessor starts
	TopKPlan        ArrayName = "topk_plan"         // [R+1] schedule of the selection kernel
	Selection       ArrayName = "selection"         // [R, K] chosen indices, -1 padded
	WindowIndices   ArrayName = "window_indices"    // [R, W] V4: sliding window
	ExtraIndices    ArrayName = "extra_indices"     // [R, W] V4: compressed stream
	CombinedIndices ArrayName = "combined_indices"  // [R, W] V4 prefill: rows of the workspace
)

// Array is one per-batch array and its shape.
type Array struct {
	Name  ArrayName  `json:"name"`
	DType plan.DType `json:"dtype"`
	Shape []int      `json:"shape"`
}

// Len returns the number of elements.
func (a Array) Len() int {
	n := 1
	for _, d := range a.Shape {
		n *= d
	}
	return n
}
