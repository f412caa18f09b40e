package plan

// Catalog selects a catalogue: the kernels of this project, or those of other engines.
type Catalog uint8

// CatalogSparrow is the zero value: the kernels of this project.
const (
	CatalogSparrow Catalog = iota
	CatalogPublic
)

var catalogs = enum[Catalog]{"catalogue", []string{"sparrow", "public"}}

func (c Catalog) String() string                { return catalogs.text(c) }
func (c Catalog) MarshalText() ([]byte, error)  { return catalogs.marshal(c) }
func (c *Catalog) UnmarshalText(t []byte) error { return catalogs.unmarshal(c, t) }

// SparsePrefill selects the V4 prompts whose attention reads rows gathered in a workspace, instead of pages.
type SparsePrefill uint8

// SparsePrefillAuto means, in the public catalogue, that prompts that fit one paged launch use the paged kernel. In the
// catalogue sparrow, measured times choose the kernel, as without a setting.
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

// ScheduleLibrary is the schedule of the score kernel's library, which supports a limited number of requests.
// ScheduleOwn is the engine's schedule, which supports any number.
const (
	ScheduleUnset Schedule = iota
	ScheduleOwn
	ScheduleLibrary
)

var schedules = enum[Schedule]{"schedule kernel", []string{"", "own", "library"}}

func (s Schedule) String() string                { return schedules.text(s) }
func (s Schedule) MarshalText() ([]byte, error)  { return schedules.marshal(s) }
func (s *Schedule) UnmarshalText(t []byte) error { return schedules.unmarshal(s, t) }

// Speculation holds the settings of drafting; the zero value disables drafting.
type Speculation struct {
	Steps    int `json:"steps,omitempty"`    // draft steps; 0 with Tokens > 0 means Tokens-1
	Branches int `json:"branches,omitempty"` // drafts kept per step; 0 means 1
	Tokens   int `json:"tokens,omitempty"`   // rows verified per request
}

// Policy holds the user's settings. The zero value of every field means "unset": Resolve decides.
type Policy struct {
	// KV is auto, bf16, fp8, fp8-656, fp8-576 or f32 (also "exact").
	KV string `json:"kv,omitempty"`
	// KVWhy and PrefillWhy are the reasons for KV and Prefill if the user did not set them.
	KVWhy      string `json:"kv_why,omitempty"`
	PrefillWhy string `json:"prefill_why,omitempty"`
	// ExactIndex keeps indexer keys in float32 while rows have another type, so that the effects of the two roundings
	// can be measured separately; only on a CPU.
	ExactIndex bool `json:"exact_index,omitempty"`
	// FP4Index keeps the indexer keys of V4 in four bits, 68 bytes instead of 132, and rounds its queries in the same
	// way.
	FP4Index bool `json:"fp4_index,omitempty"`
	// Prefill and Decode are kernel names or aliases of them.
	Prefill string `json:"prefill,omitempty"`
	Decode  string `json:"decode,omitempty"`
	// V4SparsePrefill selects whether V4 prompts read rows gathered in a workspace; if auto or unset, measured times
	// decide.
	V4SparsePrefill SparsePrefill `json:"v4_sparse_prefill,omitempty"`

	Dense          Switch `json:"dense,omitempty"`           // whether short prompt rows use the dense form
	DenseThreshold int    `json:"dense_threshold,omitempty"` // maximum keys of a prompt row in the dense form (T)
	Deterministic  bool   `json:"deterministic,omitempty"`
	// SplitKeys is the number of keys after which attention of a row over FP8 pages is cut into parts on a GPU; if
	// unset, it depends on Running.
	SplitKeys KeySplit `json:"split_keys,omitempty"`
	// Running is the maximum number of concurrent sequences of the server; 0 means unknown.
	Running     int         `json:"running,omitempty"`
	Speculation Speculation `json:"speculation,omitzero"`
	// MaxTransient is the maximum size of the temporary memory of a pass, in bytes; 0 means no limit.
	MaxTransient int64 `json:"max_transient,omitempty"`
}

// Config is the resolved, immutable configuration. Asked holds the user's settings, which only explain prints.
type Config struct {
	Catalog  Catalog  `json:"catalog"`
	Hardware Hardware `json:"hardware"`
	Model    Model    `json:"model"`
	Asked    Policy   `json:"asked,omitzero"`
	// Runnable is false for the public catalogue, whose plans are only explained.
	Runnable bool `json:"runnable"`

	Prefill     Kernel `json:"prefill"` // may be Auto or FlashMLAAuto
	Decode      Kernel `json:"decode"`
	KV          DType  `json:"kv"`
	Layout      Layout `json:"layout"`
	IndexLayout Layout `json:"index_layout"`
	Page        int    `json:"page"` // tokens per page

	DenseOK       bool `json:"dense_ok"` // the dense form is allowed, as far as that does not depend on a batch
	T             int  `json:"dense_threshold"`
	C             int  `json:"chunk_capacity"` // C: maximum keys of one dense call
	Deterministic bool `json:"deterministic"`
	// SplitKeys is the number of keys after which attention of a row is cut into parts; unset if the kernels cut no
	// rows.
	SplitKeys KeySplit `json:"split_keys,omitempty"`
	// LinearGroup is the number of positions of a prompt that linear attention computes together. Groups begin at
	// multiples of it, and the scheduler cuts prompts only there. 0 means row by row.
	LinearGroup int `json:"linear_group,omitempty"`

	ScoreCap     int64 `json:"score_cap"`     // bytes of one chunk of indexer scores
	MaxTransient int64 `json:"max_transient"` // 0: no bound
	N            int   `json:"n"`             // rows verified per request (drafts + 1); 1 without speculation

	// Shared[l] is true if layer l reuses the selected indices of an earlier layer.
	Shared []bool `json:"shared,omitempty"`

	Reasons  []Reason    `json:"reasons"`
	Rejected []Rejection `json:"rejected,omitempty"`
	// DenseAgainst lists the reasons why the dense form is off for every batch; it is empty if DenseOK is set.
	DenseAgainst []string `json:"dense_against,omitempty"`
	// Fingerprint is a hash of all fields that affect plans.
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

const (
	NoticeInfo NoticeLevel = iota
	NoticeWarning
	NoticeDeprecated
)

var noticeLevels = enum[NoticeLevel]{"notice level", []string{"info", "warning", "deprecated"}}

func (l NoticeLevel) String() string                { return noticeLevels.text(l) }
func (l NoticeLevel) MarshalText() ([]byte, error)  { return noticeLevels.marshal(l) }
func (l *NoticeLevel) UnmarshalText(t []byte) error { return noticeLevels.unmarshal(l, t) }
