package plan

import (
	"fmt"
	"strconv"
)

// Plan is the whole decision for one batch. It is never modified after Build
// returns it; its slices may be shared with the Config and are read-only.
type Plan struct {
	Mode Mode `json:"mode"`
	// Graph is, in the plan of a pass that ran, the way in which its operations were enqueued: one by one, while a
	// graph was captured, or by replaying a graph. In plans of the public catalogue it is the requested mode.
	Graph GraphMode `json:"graph"`
	// Runnable is false for plans of the public catalogue: such plans are only printed.
	Runnable bool `json:"runnable"`
	// Collectives is true if ranks combine their partial results, which includes ranks without rows.
	Collectives bool `json:"collectives"`
	// Pass selects the layers that run.
	Pass Pass `json:"pass"`
	// Shape holds everything that the plan depends on in addition to the configuration: it is the key of stored plans
	// and captured graphs.
	Shape Shape `json:"-"`
	// Rows is the number of query rows of the pass, over all segments.
	Rows int `json:"rows"`
	// Requests is the number of requests of the batch.
	Requests int `json:"requests"`
	// Logits is the number of rows whose logits are computed.
	Logits int `json:"logits"`
	// WholeLogits is the number of logit rows that are returned whole. For the other rows only a token is returned: a
	// sampled token if Draws is set, the best token otherwise.
	WholeLogits int `json:"whole_logits"`
	// Draws means that the tokens of rows that are not returned whole are sampled, with the parameters in the input
	// block.
	Draws bool `json:"draws,omitempty"`
	// Record defines what is recorded in every layer, for the number of rows in Recorded.
	Record   Record `json:"record,omitzero"`
	Recorded int    `json:"recorded,omitempty"`
	// Replay selects the choices that are replayed instead of computed, for the number of rows in Replayed.
	Replay   Replay `json:"replay,omitzero"`
	Replayed int    `json:"replayed,omitempty"`
	// JointQueries means that the indexer queries of all rows are computed together with the layer's other products.
	// With few rows, the time is bound by reading the weights. With more rows, the queries are computed for one chunk
	// of score rows at a time, to save memory.
	JointQueries bool `json:"joint_queries,omitempty"`
	// LinearGroup is the number of positions of a prompt that linear attention computes together; 0: row by row.
	LinearGroup int `json:"linear_group,omitempty"`
	// TablePages is the width of the page tables, in pages.
	TablePages int       `json:"table_pages"`
	Segments   []Segment `json:"segments"`
	// Shares holds the rows of each rank if ranks divide attention by requests; otherwise nil.
	Shares []Share `json:"shares,omitempty"`
	// RowBounds has the first row of each rank, and the end of the rows of the last rank. DraftBounds holds the bounds
	// of the ranks among the computed rows of V4's drafting block. Both are nil if Shares is nil.
	RowBounds   []int `json:"-"`
	DraftBounds []int `json:"-"`
	// Inputs are the arrays of the pass: one block of int32 words that is
	// filled in host memory and copied to the device once.
	Inputs []Array `json:"inputs,omitempty"`
	// InputWords is the size of the block.
	InputWords int `json:"input_words,omitempty"`
	// TransientBytes is the maximum memory that the step needs at any time in addition to weights and pools. Segments
	// run one after the other, so it is the maximum over segments, not their sum.
	TransientBytes int64 `json:"transient_bytes"`
	// Key is a hash of everything that a captured graph depends on.
	Key     Key      `json:"key"`
	Reasons []Reason `json:"reasons,omitempty"`
}

// Segment is a group of rows that are computed in the same way. The rows of a step are in the order of the plan's
// segments and, within a segment, in the order of its spans.
type Segment struct {
	Row RowKind `json:"row"`
	// Rank is the rank that has the sequences of the segment, if ranks divide attention by requests.
	Rank int `json:"rank,omitempty"`
	// FirstRow is the first row of the segment among the rows of the step.
	FirstRow int `json:"first_row"`
	Rows     int `json:"rows"`
	// KernelRows is the number of rows, including padding, that kernels process on one rank.
	KernelRows int `json:"kernel_rows"`
	// Requests is the number of spans plus the number of padding requests (B in the shapes of arrays).
	Requests int `json:"requests"`
	// NextN is the number of rows of each request in a decode, verify or draft segment; 0 in a prefill segment.
	NextN int `json:"next_n,omitempty"`
	// Keys is the sum over spans of the keys of their last row; 0 in other than prefill segments, because their plans
	// do not depend on lengths.
	Keys  int    `json:"keys,omitempty"`
	Spans []Span `json:"spans"`

	Form        Form   `json:"form"`
	Kernel      Kernel `json:"kernel"`
	KernelHeads int    `json:"kernel_heads"`
	// HeadRepeat is how often each head is repeated, for kernels that repeat heads instead of padding them; otherwise
	// 1. HeadRepeat, FusedTopK and RopeInKernel are used only in the public catalogue: kernels of the catalogue sparrow
	// pad heads, select in a separate operation, and read rotated rows.
	HeadRepeat  int       `json:"head_repeat,omitempty"`
	Layout      Layout    `json:"layout"`
	Convert     Convert   `json:"convert"`
	Transform   Transform `json:"transform"`
	FusedTopK   bool      `json:"fused_topk,omitempty"`
	Indexer     Indexer   `json:"indexer"`
	NeedIndices bool      `json:"need_indices"`
	// RopeInKernel means that the caller passes un-rotated Q and K.
	RopeInKernel bool `json:"rope_in_kernel,omitempty"`
	// SplitsFixed means that the key range is cut in the same way for any batch.
	SplitsFixed bool `json:"splits_fixed"`
	// SplitKeys is the number of keys after which the kernel cuts attention of a row into parts; unset for kernels that
	// do not cut rows.
	SplitKeys KeySplit `json:"split_keys,omitempty"`
	Variant   Variant  `json:"variant"`

	// RowsPerLaunch is the row limit of each launch; Limit is its cause. Launches cover rows 0..KernelRows exactly
	// once, in order.
	RowsPerLaunch int      `json:"rows_per_launch"`
	Limit         string   `json:"limit"`
	Launches      []Launch `json:"launches"`

	TransientBytes int64       `json:"transient_bytes"`
	Reasons        []Reason    `json:"reasons"`
	Rejected       []Rejection `json:"rejected,omitempty"`
}

// Span is a run of consecutive new tokens of one request: tokens From to To
// (half open) counted from the request's first new token. Its positions in the
// sequence start at Batch.FirstPosition(Request) + From. Counting from the
// first new token keeps plans of decode batches independent of lengths.
type Span struct {
	Request int `json:"request"` // index into Batch.Requests
	From    int `json:"from"`
	To      int `json:"to"`
	// FirstRow is the segment row of token From.
	FirstRow int `json:"first_row"`
}

// Rows returns the number of rows of the span.
func (s Span) Rows() int { return s.To - s.From }

// Launch is the part of a segment with the rows FirstRow to FirstRow+Rows (half open). Its scores, selection and
// attention are finished before the next launch begins, so TransientBytes is the memory of the largest launch.
type Launch struct {
	FirstRow int `json:"first_row"`
	Rows     int `json:"rows"`
	// FirstSpan is the index of the first span of the rows, Spans the number of spans; padding rows have no span.
	FirstSpan int `json:"first_span"`
	Spans     int `json:"spans"`
	// Keys is the sum of the keys of these spans; 0 in other than prefill segments.
	Keys int `json:"keys,omitempty"`
	// The entries that the launch gathers and converts, as parts of the input arrays GatherSlots, GroupSlots,
	// HeavySlots, IndexSlots and ConvertPages. Gather has the cached rows that the launch's rows attend to (V4: window
	// entries); Groups and Heavy are V4's entries of ratio 4 and 128; Index has indexer keys (V4: keys of the entries
	// in Groups).
	Gather Run `json:"gather,omitzero"`
	Groups Run `json:"groups,omitzero"`
	Heavy  Run `json:"heavy,omitzero"`
	Index  Run `json:"index,omitzero"`
	Pages  Run `json:"pages,omitzero"`
	// Tables has the rows of ConvertTables, which refer to the converted pages.
	Tables Run `json:"tables,omitzero"`
}

// Run is a part of an array: Count entries from First on.
type Run struct {
	First int `json:"first"`
	Count int `json:"count"`
}

// End returns First + Count, the index after the last entry.
func (r Run) End() int { return r.First + r.Count }

// Indexer is the indexer path with its sizes.
type Indexer struct {
	Kind IndexerKind `json:"kind"`
	// NextN is how many rows of a request the native paged path scores at once,
	// all of them or an equal group; 1 for the split path.
	NextN int `json:"next_n,omitempty"`
	// KernelN is the number of rows of a request that the native kernel processes, at least NextN; rows beyond NextN
	// are masked. Only in the sparrow catalogue.
	KernelN int `json:"kernel_n,omitempty"`
	// Schedule is the kernel that plans V4's paged scores in the public
	// catalogue.
	Schedule Schedule `json:"schedule,omitempty"`
	// RowsPerChunk and Chunks cut the score matrix [KernelRows, ScoreWidth];
	// each chunk is [RowsPerChunk, ScoreWidth] float32.
	RowsPerChunk int `json:"rows_per_chunk,omitempty"`
	Chunks       int `json:"chunks,omitempty"`
	ScoreWidth   int `json:"score_width,omitempty"`
	// Heads is the number of index heads, including padding heads with zero weights.
	Heads int `json:"heads,omitempty"`
}

// Reason states why something was chosen and by which rule.
type Reason struct {
	Rule string `json:"rule"`
	Text string `json:"text"`
}

// Rejection is a candidate that was not chosen, with the reason.
type Rejection struct {
	Kernel Kernel `json:"kernel"`
	Phase  Phase  `json:"phase"`
	Code   Code   `json:"code,omitempty"`
	Reason string `json:"reason"`
}

// Key is a hash of everything that a captured graph depends on, equal in all processes.
type Key uint64

func (k Key) String() string { return fmt.Sprintf("%016x", uint64(k)) }

// MarshalText writes the key as 16 hex digits, which JSON readers keep exactly.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the hex form.
func (k *Key) UnmarshalText(t []byte) error {
	v, err := strconv.ParseUint(string(t), 16, 64)
	if err != nil {
		return fmt.Errorf("plan: key %q is not a hexadecimal number: %w", t, err)
	}
	*k = Key(v)
	return nil
}

// Phase is prefill or decode; each has its own kernel.
type Phase uint8

const (
	PhaseUnset Phase = iota
	PhasePrefill
	PhaseDecode
)

var phases = enum[Phase]{"phase", []string{"", "prefill", "decode"}}

func (p Phase) String() string                { return phases.text(p) }
func (p Phase) MarshalText() ([]byte, error)  { return phases.marshal(p) }
func (p *Phase) UnmarshalText(t []byte) error { return phases.unmarshal(p, t) }
