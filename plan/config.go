package plan

// Catalog names a set of kernels.
type Catalog uint8

// CatalogSparrow is the zero value: the kernels this project runs.
const (
	CatalogSparrow Catalog = iota
	CatalogPublic
)

var catalogs = enum[Catalog]{"catalogue", []string{"sparrow", "public"}}

func (c Catalog) String() string                { return catalogs.text(c) }
func (c Catalog) MarshalText() ([]byte, error)  { return catalogs.marshal(c) }
func (c *Catalog) UnmarshalText(t []byte) error { return catalogs.unmarshal(c, t) }

// TopKBackend is the selection kernel.
type TopKBackend uint8

// TopKStable is the selection of the sparrow catalogue: exact, lowest position
// first among equal scores. The others belong to the public catalogue.
const (
	TopKUnset TopKBackend = iota
	TopKStable
	TopKSGL
	TopKFlashInfer
	TopKTorch
)

var topkBackends = enum[TopKBackend]{"top-k backend", []string{"", "stable", "sgl-kernel", "flashinfer", "torch"}}

func (b TopKBackend) String() string                { return topkBackends.text(b) }
func (b TopKBackend) MarshalText() ([]byte, error)  { return topkBackends.marshal(b) }
func (b *TopKBackend) UnmarshalText(t []byte) error { return topkBackends.unmarshal(b, t) }

// TieBreak says which of two equal scores is selected first.
type TieBreak uint8

// TieNone leaves the order to the kernel.
const (
	TieNone TieBreak = iota
	TieSmall
	TieLarge
)

var tieBreaks = enum[TieBreak]{"tie break", []string{"", "small", "large"}}

func (b TieBreak) String() string                { return tieBreaks.text(b) }
func (b TieBreak) MarshalText() ([]byte, error)  { return tieBreaks.marshal(b) }
func (b *TieBreak) UnmarshalText(t []byte) error { return tieBreaks.unmarshal(b, t) }

// ScoreBackend is the kernel of the paged indexer scores.
type ScoreBackend uint8

// ScoreNative is the score kernel of the sparrow catalogue.
const (
	ScoreUnset ScoreBackend = iota
	ScoreNative
	ScoreDeepGEMM
	ScoreAiter
	ScoreCuteDSL
)

var scoreBackends = enum[ScoreBackend]{"score backend", []string{"", "native", "deepgemm", "aiter", "cutedsl"}}

func (b ScoreBackend) String() string                { return scoreBackends.text(b) }
func (b ScoreBackend) MarshalText() ([]byte, error)  { return scoreBackends.marshal(b) }
func (b *ScoreBackend) UnmarshalText(t []byte) error { return scoreBackends.unmarshal(b, t) }

// CPKind is the way context parallelism deals tokens to ranks.
type CPKind uint8

// CPInterleave deals round robin; CPZigzag gives rank r the blocks r and
// 2*size-1-r of one sequence.
const (
	CPNone CPKind = iota
	CPInterleave
	CPZigzag
)

var cpKinds = enum[CPKind]{"context parallelism", []string{"", "interleave", "zigzag"}}

func (k CPKind) String() string                { return cpKinds.text(k) }
func (k CPKind) MarshalText() ([]byte, error)  { return cpKinds.marshal(k) }
func (k *CPKind) UnmarshalText(t []byte) error { return cpKinds.unmarshal(k, t) }

// SparsePrefill says which V4 prompts go through a gathered workspace.
type SparsePrefill uint8

// SparsePrefillAuto leaves prompts that one paged launch holds to the paged
// kernel in the public catalogue; in ours, measured times choose the kernel, as
// they do without a wish.
const (
	SparsePrefillUnset SparsePrefill = iota
	SparsePrefillOn
	SparsePrefillAuto
	SparsePrefillOff
)

var sparsePrefills = enum[SparsePrefill]{"sparse prefill", []string{"", "on", "auto", "off"}}

func (s SparsePrefill) String() string                { return sparsePrefills.text(s) }
func (s SparsePrefill) MarshalText() ([]byte, error)  { return sparsePrefills.marshal(s) }
func (s *SparsePrefill) UnmarshalText(t []byte) error { return sparsePrefills.unmarshal(s, t) }

// Schedule is the kernel that plans paged index scores in the public catalogue.
type Schedule uint8

// ScheduleLibrary is the score library's, which holds a bounded number of
// lengths; ScheduleOwn is the engine's, which holds any.
const (
	ScheduleUnset Schedule = iota
	ScheduleOwn
	ScheduleLibrary
)

var schedules = enum[Schedule]{"schedule kernel", []string{"", "own", "library"}}

func (s Schedule) String() string                { return schedules.text(s) }
func (s Schedule) MarshalText() ([]byte, error)  { return schedules.marshal(s) }
func (s *Schedule) UnmarshalText(t []byte) error { return schedules.unmarshal(s, t) }

// Role is the part a process plays when prefill and decode are separated.
type Role uint8

// RoleBoth serves prefill and decode together.
const (
	RoleBoth Role = iota
	RolePrefill
	RoleDecode
)

var roles = enum[Role]{"role", []string{"both", "prefill", "decode"}}

func (r Role) String() string                { return roles.text(r) }
func (r Role) MarshalText() ([]byte, error)  { return roles.marshal(r) }
func (r *Role) UnmarshalText(t []byte) error { return roles.unmarshal(r, t) }

// CP is context parallelism of prefill; the zero value is off.
type CP struct {
	Kind CPKind `json:"kind,omitempty"`
	Size int    `json:"size,omitempty"`
}

// Speculation describes drafting; the zero value is off.
type Speculation struct {
	Steps    int `json:"steps,omitempty"`    // draft steps; 0 with Tokens > 0 means Tokens-1
	Branches int `json:"branches,omitempty"` // drafts kept per step; 0 means 1
	Tokens   int `json:"tokens,omitempty"`   // rows verified per request (n)
}

// Policy is what the user asked for. The zero value of every field means
// "unset": Resolve decides.
type Policy struct {
	Catalog Catalog `json:"catalog"`
	// KV is auto, bf16, fp8, fp8-656, fp8-576 or f32 (also "exact").
	KV string `json:"kv,omitempty"`
	// ExactIndex keeps indexer keys in float32 beside rows of another type, to
	// tell the two roundings apart; on cpu, for proofs.
	ExactIndex bool `json:"exact_index,omitempty"`
	// FP4Index keeps the indexer keys of V4 in four bits, 68 bytes for 132, and
	// rounds its queries alike.
	FP4Index bool `json:"fp4_index,omitempty"`
	// Prefill and Decode are kernel names or aliases of them.
	Prefill string `json:"prefill,omitempty"`
	Decode  string `json:"decode,omitempty"`
	// PrefillWhy says why Prefill is named where the user did not name it.
	PrefillWhy string `json:"prefill_why,omitempty"`
	Page       int    `json:"page,omitempty"` // tokens per page

	Dense          Switch `json:"dense,omitempty"`           // the dense form for short prompt rows
	DenseThreshold int    `json:"dense_threshold,omitempty"` // T
	ChunkCapacity  int    `json:"chunk_capacity,omitempty"`  // C, keys of one dense call
	Deterministic  bool   `json:"deterministic,omitempty"`
	// AutomaticSplits on lets kernels cut the key range by load. Unset, the
	// catalogue sparrow fixes splits and the public one cuts by load.
	AutomaticSplits Switch `json:"automatic_splits,omitempty"`
	// SplitKeys is where rows of FP8 pages are cut on sm90; unset, Running decides.
	SplitKeys KeySplit `json:"split_keys,omitempty"`
	// Running is how many sequences the server is set up to run at once; 0 means that nobody said.
	Running int `json:"running,omitempty"`

	TopK     TopKBackend  `json:"topk,omitempty"`
	TieBreak TieBreak     `json:"tie_break,omitempty"`
	Fused    Switch       `json:"fused,omitempty"` // selection and transform in one kernel
	Scores   ScoreBackend `json:"scores,omitempty"`
	// ScoreFraction of free memory may hold indexer scores; 0 means 0.2.
	ScoreFraction float64 `json:"score_fraction,omitempty"`
	// ScoreCap bounds one chunk of indexer scores in bytes; 0 means 256 MiB.
	ScoreCap int64 `json:"score_cap,omitempty"`
	// StaticFraction of device memory holds weights and pools; 0 means unset.
	StaticFraction float64 `json:"static_fraction,omitempty"`
	// MaxTransient is the reserve for transient memory in bytes; 0 means the
	// part StaticFraction leaves, or no bound.
	MaxTransient int64 `json:"max_transient,omitempty"`
	// Slicing off turns a row limit that is exceeded into an error.
	Slicing Switch `json:"slicing,omitempty"`
	// DecodeSkip on says that skipping the scores of short eager decodes was
	// validated on this hardware.
	DecodeSkip Switch `json:"decode_skip,omitempty"`

	CP          CP          `json:"cp,omitzero"`
	AttentionTP int         `json:"attention_tp,omitempty"`
	DP          int         `json:"dp,omitempty"`
	Role        Role        `json:"role"`
	HiSparse    bool        `json:"hisparse,omitempty"`
	RadixCache  bool        `json:"radix_cache,omitempty"`
	Speculation Speculation `json:"speculation,omitzero"`
	TBO         bool        `json:"tbo,omitempty"` // two-batch overlap
	// CarryIndices says that each sub-batch and each pipeline stage hands
	// selected indices on to the layers that share them.
	CarryIndices bool `json:"carry_indices,omitempty"`
	// PipelineCuts lists the first layer of every stage but the first.
	PipelineCuts []int `json:"pipeline_cuts,omitempty"`

	// V4SparsePrefill says which V4 prompts go through a gathered workspace; V4Schedule, in the public catalogue, which
	// kernel plans the indexer's paged scores; V4Q8
	// selects its FP8 variant.
	V4SparsePrefill SparsePrefill `json:"v4_sparse_prefill,omitempty"`
	V4Schedule      Schedule      `json:"v4_schedule,omitempty"`
	V4Q8            bool          `json:"v4_q8,omitempty"`
	// ChunkedPrefill is the most prompt tokens of one step; 0 means StepTokens, in the public catalogue by memory.
	ChunkedPrefill int `json:"chunked_prefill,omitempty"`
}

// Config is the resolved, immutable configuration. Asked keeps the user's
// wishes beside it, for explain to show; no decision after Resolve reads them.
type Config struct {
	Catalog  Catalog  `json:"catalog"`
	Hardware Hardware `json:"hardware"`
	Model    Model    `json:"model"`
	Asked    Policy   `json:"asked"`
	// Runnable is false for the public catalogue.
	Runnable bool `json:"runnable"`

	Prefill     Kernel `json:"prefill"` // may be Auto or FlashMLAAuto
	Decode      Kernel `json:"decode"`
	KV          DType  `json:"kv"`
	Layout      Layout `json:"layout"`
	IndexLayout Layout `json:"index_layout"`
	Page        int    `json:"page"` // tokens per page

	DenseOK       bool `json:"dense_ok"` // every condition of the dense form that no batch can change
	T             int  `json:"dense_threshold"`
	C             int  `json:"chunk_capacity"`
	Deterministic bool `json:"deterministic"`
	// SplitsFixed cuts key ranges the same way whatever the batch.
	SplitsFixed bool `json:"splits_fixed"`
	// SplitKeys is where rows of FP8 pages are cut; unset where the kernels cut none.
	SplitKeys KeySplit `json:"split_keys,omitempty"`

	TopK          TopKBackend  `json:"topk"`
	TieBreak      TieBreak     `json:"tie_break,omitempty"`
	Fused         bool         `json:"fused"`
	Scores        ScoreBackend `json:"scores"`
	ScoreFraction float64      `json:"score_fraction"`
	ScoreCap      int64        `json:"score_cap"`
	StaticPart    float64      `json:"static_part"`
	MaxTransient  int64        `json:"max_transient"` // 0: no bound
	Slicing       bool         `json:"slicing"`
	// DecodeSkip says that short eager decodes may skip their scores.
	DecodeSkip bool `json:"decode_skip,omitempty"`

	N              int  `json:"n"` // rows verified per request, 1 without speculation
	CP             CP   `json:"cp,omitzero"`
	HiSparse       bool `json:"hisparse,omitempty"`
	TBO            bool `json:"tbo,omitempty"`
	Role           Role `json:"role"`
	MixedAllowed   bool `json:"mixed_allowed"`
	ChunkedPrefill int  `json:"chunked_prefill"`
	MaxRunning     int  `json:"max_running,omitempty"`
	// SparsePrefill is settled for V4 alone. Schedule is the kernel that plans
	// its paged scores in the public catalogue, unset where size decides.
	SparsePrefill SparsePrefill `json:"sparse_prefill,omitempty"`
	Schedule      Schedule      `json:"schedule,omitempty"`

	// Shared[l] says that layer l reuses the indices of an earlier layer.
	Shared []bool `json:"shared,omitempty"`

	Reasons  []Reason    `json:"reasons"`
	Rejected []Rejection `json:"rejected,omitempty"`
	// DenseAgainst lists why the dense form is off for every batch; it is empty
	// where DenseOK holds.
	DenseAgainst []string `json:"dense_against,omitempty"`
	// Fingerprint hashes every field that Resolve decided or was given.
	Fingerprint Key `json:"fingerprint"`
}

// Notice is something the user should see at start.
type Notice struct {
	Level NoticeLevel `json:"level"`
	Rule  string      `json:"rule"`
	Text  string      `json:"text"`
}

// NoticeLevel orders notices by weight.
type NoticeLevel uint8

// The levels.
const (
	NoticeInfo NoticeLevel = iota
	NoticeWarning
	NoticeDeprecated
)

var noticeLevels = enum[NoticeLevel]{"notice level", []string{"info", "warning", "deprecated"}}

func (l NoticeLevel) String() string                { return noticeLevels.text(l) }
func (l NoticeLevel) MarshalText() ([]byte, error)  { return noticeLevels.marshal(l) }
func (l *NoticeLevel) UnmarshalText(t []byte) error { return noticeLevels.unmarshal(l, t) }
