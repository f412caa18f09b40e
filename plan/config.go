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

// SparsePrefill states which V4 prompts go through a gathered workspace.
type SparsePrefill uint8

// SparsePrefillAuto means, in the public catalogue, that prompts that fit one paged launch use the paged kernel; in
// ours, measured times choose the kernel, as without a setting.
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

// ScheduleLibrary is the schedule of the score library, which supports a limited number of lengths; ScheduleOwn is
// the schedule of the engine, which supports any number.
const (
	ScheduleUnset Schedule = iota
	ScheduleOwn
	ScheduleLibrary
)

var schedules = enum[Schedule]{"schedule kernel", []string{"", "own", "library"}}

func (s Schedule) String() string                { return schedules.text(s) }
func (s Schedule) MarshalText() ([]byte, error)  { return schedules.marshal(s) }
func (s *Schedule) UnmarshalText(t []byte) error { return schedules.unmarshal(s, t) }

// Speculation describes drafting; the zero value is off.
type Speculation struct {
	Steps    int `json:"steps,omitempty"`    // draft steps; 0 with Tokens > 0 means Tokens-1
	Branches int `json:"branches,omitempty"` // drafts kept per step; 0 means 1
	Tokens   int `json:"tokens,omitempty"`   // rows verified per request
}

// Policy is the user's settings. The zero value of every field means "unset": Resolve decides.
type Policy struct {
	// KV is auto, bf16, fp8, fp8-656, fp8-576 or f32 (also "exact").
	KV string `json:"kv,omitempty"`
	// KVWhy and PrefillWhy are the reasons for KV and Prefill if the user did not set them.
	KVWhy      string `json:"kv_why,omitempty"`
	PrefillWhy string `json:"prefill_why,omitempty"`
	// ExactIndex keeps indexer keys in float32 while rows have another type, to separate the two roundings; on cpu, for
	// proofs.
	ExactIndex bool `json:"exact_index,omitempty"`
	// FP4Index keeps the indexer keys of V4 in four bits, 68 bytes instead of 132, and rounds its queries in the same
	// way.
	FP4Index bool `json:"fp4_index,omitempty"`
	// Prefill and Decode are kernel names or aliases of them.
	Prefill string `json:"prefill,omitempty"`
	Decode  string `json:"decode,omitempty"`
	// V4SparsePrefill reports whether V4 prompts go through a gathered workspace; if auto or unset, measured times
	// decide.
	V4SparsePrefill SparsePrefill `json:"v4_sparse_prefill,omitempty"`

	Dense          Switch `json:"dense,omitempty"`           // whether short prompt rows use the dense form
	DenseThreshold int    `json:"dense_threshold,omitempty"` // T: maximum keys of a dense prompt row
	Deterministic  bool   `json:"deterministic,omitempty"`
	// SplitKeys is the number of keys after which rows of FP8 pages are cut on a GPU; if unset, Running decides.
	SplitKeys KeySplit `json:"split_keys,omitempty"`
	// Running is the maximum number of concurrent sequences of the server; 0 means unknown.
	Running     int         `json:"running,omitempty"`
	Speculation Speculation `json:"speculation,omitzero"`
	// MaxTransient is the reserve for transient memory in bytes; 0 means no bound.
	MaxTransient int64 `json:"max_transient,omitempty"`
}

// Config is the resolved, immutable configuration. Asked keeps the user's settings for explain to show; no decision
// after Resolve reads them.
type Config struct {
	Catalog  Catalog  `json:"catalog"`
	Hardware Hardware `json:"hardware"`
	Model    Model    `json:"model"`
	Asked    Policy   `json:"asked,omitzero"`
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
	C             int  `json:"chunk_capacity"` // C: maximum keys of one dense call
	Deterministic bool `json:"deterministic"`
	// SplitKeys is the number of keys after which rows of FP8 pages are cut; unset if the kernels cut none.
	SplitKeys KeySplit `json:"split_keys,omitempty"`

	ScoreCap     int64 `json:"score_cap"`     // bytes of one chunk of indexer scores
	MaxTransient int64 `json:"max_transient"` // 0: no bound
	N            int   `json:"n"`             // rows verified per request (drafts + 1); 1 without speculation

	// Shared[l] reports that layer l reuses the indices of an earlier layer.
	Shared []bool `json:"shared,omitempty"`

	Reasons  []Reason    `json:"reasons"`
	Rejected []Rejection `json:"rejected,omitempty"`
	// DenseAgainst lists the reasons why the dense form is off for every batch; it is empty if DenseOK is set.
	DenseAgainst []string `json:"dense_against,omitempty"`
	// Fingerprint hashes every field that Resolve decided or was given.
	Fingerprint Key `json:"fingerprint"`
}

// Notice is a message for the user at start.
type Notice struct {
	Level NoticeLevel `json:"level"`
	Rule  string      `json:"rule"`
	Text  string      `json:"text"`
}

// NoticeLevel is the severity of a notice.
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
