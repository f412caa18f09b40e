package plan

// ArrayName names a per-batch array of dispatch section 11.
type ArrayName uint8

// B requests, R rows, W table width in tokens, P page size. Int32 throughout.
const (
	ArrayUnset      ArrayName = iota
	CacheSeqlens              // [B] keys per request after this step
	CuSeqlensK                // [B+1] prefix sums of the above
	CuSeqlensQ                // [B+1] query offsets; [R+1] counting up in decode-like segments
	PageTable1                // [B or R, W] one slot per position
	RealPageTable             // [B or R, W/P] one page id per page
	PageTableFlat             // [sum of keys] slots of the keys to gather
	TopKOffset                // [R] first gathered row of the row's request
	SeqlensExpanded           // [R] keys visible to the row
	DSACacheSeqlens           // [R padded] the above, at most K, 0 for padding
	DSACuK                    // [R padded + 1] prefix sums of the above
	DSACuQ                    // [R padded + 1] counting up
	KStart                    // [R] first gathered index key of the row's request
	KEnd                      // [R] KStart + keys visible to the row
	TokenToRequest            // [R] index into Batch.Requests
	SplitMetadata             // [parts, 8]
	NumSplits                 // [R+1]
	CtxLens2D                 // [B, n] native, [R, 1] split
	PagedSchedule             // [SMs+1, 2]
	TopKPlan                  // [R+1]
	Selection                 // [R, K] chosen indices, -1 padded
	WindowIndices             // [R, W] V4: sliding window
	ExtraIndices              // [R, W] V4: compressed stream
	CombinedIndices           // [R, W] V4 prefill: rows of the workspace
)

var arrayNames = enum[ArrayName]{"array", []string{"",
	"cache_seqlens", "cu_seqlens_k", "cu_seqlens_q", "page_table_1", "real_page_table", "page_table_flat",
	"topk_offset", "seqlens_expanded", "dsa_cache_seqlens", "dsa_cu_k", "dsa_cu_q", "k_start", "k_end",
	"token_to_request", "split_metadata", "num_splits", "ctx_lens_2d", "paged_schedule", "topk_plan",
	"selection", "window_indices", "extra_indices", "combined_indices",
}}

func (a ArrayName) String() string                { return arrayNames.text(a) }
func (a ArrayName) MarshalText() ([]byte, error)  { return arrayNames.marshal(a) }
func (a *ArrayName) UnmarshalText(t []byte) error { return arrayNames.unmarshal(a, t) }
