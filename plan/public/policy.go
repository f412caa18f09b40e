package public

import (
	"fmt"
	"slices"
	"strings"

	"sparrow/plan"
)

// TopK is the selection kernel.
type TopK string

const (
	TopKUnset      TopK = ""
	TopKSGL        TopK = "sgl-kernel"
	TopKFlashInfer TopK = "flashinfer"
	TopKTorch      TopK = "torch"
)

// TieBreak states which of two positions with equal scores is selected first.
type TieBreak string

// TieNone leaves the order to the kernel.
const (
	TieNone  TieBreak = ""
	TieSmall TieBreak = "small"
	TieLarge TieBreak = "large"
)

// Scores is the kernel of the paged indexer scores.
type Scores string

// ScoreNative is used on hardware that supports no other kernel.
const (
	ScoreUnset    Scores = ""
	ScoreNative   Scores = "native"
	ScoreDeepGEMM Scores = "deepgemm"
	ScoreAiter    Scores = "aiter"
	ScoreCuteDSL  Scores = "cutedsl"
)

// CPKind is the way in which context parallelism distributes tokens to ranks.
type CPKind string

// CPInterleave distributes round robin; CPZigzag gives rank r the blocks r and 2*size-1-r of one sequence.
const (
	CPNone       CPKind = ""
	CPInterleave CPKind = "interleave"
	CPZigzag     CPKind = "zigzag"
)

// CP is context parallelism of prefill; the zero value is off.
type CP struct {
	Kind CPKind `json:"kind,omitempty"`
	Size int    `json:"size,omitempty"`
}

// Role states whether a process runs prefill, decode, or both.
type Role string

// RoleBoth runs prefill and decode in one process.
const (
	RoleBoth    Role = ""
	RolePrefill Role = "prefill"
	RoleDecode  Role = "decode"
)

// Policy holds the settings of another engine. The zero value of every field means "unset": Resolve decides.
type Policy struct {
	KV string `json:"kv,omitempty"` // auto, bf16, fp8 or a layout
	// Prefill and Decode are kernel names or aliases of them.
	Prefill string `json:"prefill,omitempty"`
	Decode  string `json:"decode,omitempty"`
	Page    int    `json:"page,omitempty"` // tokens per page

	Dense          plan.Switch `json:"dense,omitempty"`           // the dense form for short prompts
	DenseThreshold int         `json:"dense_threshold,omitempty"` // maximum keys of a prompt row in the dense form (T)
	ChunkCapacity  int         `json:"chunk_capacity,omitempty"`  // maximum keys of one dense call (C)
	Deterministic  bool        `json:"deterministic,omitempty"`
	// AutomaticSplits: off means that the key range is cut in a fixed way; otherwise kernels cut it by load.
	AutomaticSplits plan.Switch `json:"automatic_splits,omitempty"`

	TopK     TopK        `json:"topk,omitempty"`
	TieBreak TieBreak    `json:"tie_break,omitempty"`
	Fused    plan.Switch `json:"fused,omitempty"` // selection and transform in one kernel
	Scores   Scores      `json:"scores,omitempty"`
	// ScoreCap bounds one chunk of indexer scores in bytes; 0 means 256 MiB.
	ScoreCap int64 `json:"score_cap,omitempty"`
	// MaxTransient is the maximum size of the temporary memory of a pass, in bytes; 0 means no limit.
	MaxTransient int64 `json:"max_transient,omitempty"`
	// Slicing: off means that more rows than a kernel's limit are an error; otherwise they are cut into launches.
	Slicing plan.Switch `json:"slicing,omitempty"`
	// DecodeSkip: on means that skipping the scores of short eager decodes was validated on this hardware.
	DecodeSkip plan.Switch `json:"decode_skip,omitempty"`

	CP          CP               `json:"cp,omitzero"`
	AttentionTP int              `json:"attention_tp,omitempty"`
	DP          int              `json:"dp,omitempty"`
	Role        Role             `json:"role,omitempty"`
	HiSparse    bool             `json:"hisparse,omitempty"`
	RadixCache  bool             `json:"radix_cache,omitempty"`
	Speculation plan.Speculation `json:"speculation,omitzero"`
	// Running is the maximum number of sequences in a batch; 0 means the default of these engines.
	Running int  `json:"max_running,omitempty"`
	TBO     bool `json:"tbo,omitempty"` // two-batch overlap
	// CarryIndices means that each sub-batch and each pipeline stage passes selected indices on to the layers that
	// share them.
	CarryIndices bool `json:"carry_indices,omitempty"`
	// PipelineCuts lists the first layer of every stage but the first.
	PipelineCuts []int `json:"pipeline_cuts,omitempty"`

	// V4SparsePrefill states which V4 prompts use a gathered workspace. V4Schedule is the kernel that plans the
	// indexer's paged scores. V4Q8 selects the FP8 variant of the sparse prefill.
	V4SparsePrefill plan.SparsePrefill `json:"v4_sparse_prefill,omitempty"`
	V4Schedule      plan.Schedule      `json:"v4_schedule,omitempty"`
	V4Q8            bool               `json:"v4_q8,omitempty"`
	// FP4Index keeps the indexer keys of V4 in four bits.
	FP4Index bool `json:"fp4_index,omitempty"`
	// ChunkedPrefill is the maximum number of prompt tokens of one step; 0 means a value that depends on the device's
	// memory.
	ChunkedPrefill int `json:"chunked_prefill,omitempty"`
}

// Config is the resolved, immutable configuration: the fields that every planner sets, and the fields of these
// engines. The user's settings are only printed by explain.
type Config struct {
	plan.Config
	Wishes Policy `json:"wishes,omitzero"`

	SplitsFixed    bool     `json:"splits_fixed,omitempty"`
	TopK           TopK     `json:"topk,omitempty"`
	TieBreak       TieBreak `json:"tie_break,omitempty"`
	Fused          bool     `json:"fused,omitempty"`
	Scores         Scores   `json:"scores,omitempty"`
	CP             CP       `json:"cp,omitzero"`
	HiSparse       bool     `json:"hisparse,omitempty"`
	TBO            bool     `json:"tbo,omitempty"`
	Role           Role     `json:"role,omitempty"`
	Unsliced       bool     `json:"unsliced,omitempty"`
	DecodeSkip     bool     `json:"decode_skip,omitempty"` // short eager decodes may skip their scores
	MixedAllowed   bool     `json:"mixed_allowed,omitempty"`
	ChunkedPrefill int      `json:"chunked_prefill,omitempty"`
	MaxRunning     int      `json:"max_running,omitempty"`
	// SparsePrefill is set only for V4. Schedule is the kernel that plans V4's paged scores; it is unset if the number
	// of rows decides.
	SparsePrefill plan.SparsePrefill `json:"sparse_prefill,omitempty"`
	Schedule      plan.Schedule      `json:"schedule,omitempty"`
}

// check returns an error for unknown words and negative numbers.
func (p *Policy) check() error {
	if p.DenseThreshold < 0 || p.ChunkCapacity < 0 || p.Page < 0 || p.ChunkedPrefill < 0 || p.ScoreCap < 0 ||
		p.MaxTransient < 0 || p.Running < 0 {
		return fmt.Errorf("public: policy: dense threshold %d, chunk capacity %d, page %d, chunked prefill %d, score "+
			"cap %d, transient reserve %d and running sequences %d must not be negative", p.DenseThreshold,
			p.ChunkCapacity, p.Page, p.ChunkedPrefill, p.ScoreCap, p.MaxTransient, p.Running)
	}
	for _, err := range []error{
		oneOf(plan.E09, "selection", p.TopK, TopKUnset, TopKSGL, TopKFlashInfer, TopKTorch),
		oneOf(plan.E09, "a tie break", p.TieBreak, TieNone, TieSmall, TieLarge),
		oneOf(plan.E02, "paged scores", p.Scores, ScoreUnset, ScoreNative, ScoreDeepGEMM, ScoreAiter, ScoreCuteDSL),
		oneOf(plan.E10, "context parallelism", p.CP.Kind, CPNone, CPInterleave, CPZigzag),
		oneOf(plan.E10, "a role", p.Role, RoleBoth, RolePrefill, RoleDecode),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// oneOf returns an error if the list does not contain the word. The first word of the list means unset.
func oneOf[T ~string](code plan.Code, what string, word T, words ...T) error {
	if slices.Contains(words, word) {
		return nil
	}
	list := make([]string, 0, len(words))
	for _, w := range words[1:] {
		list = append(list, string(w))
	}
	return &plan.Error{Code: code, Asked: fmt.Sprintf("%s by %q", what, word), Supported: strings.Join(list, ", "),
		Try: string(words[1])}
}
