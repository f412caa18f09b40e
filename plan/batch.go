package plan

// Batch describes one forward pass: its requests with their lengths, and which outputs are needed.
type Batch struct {
	Mode     Mode      `json:"mode"`
	Requests []Request `json:"requests"`
	// Pass selects the layers that run: the main layers, or the drafting layer.
	Pass Pass `json:"pass,omitempty"`
	// Record defines what is recorded in every layer in addition to the logits, for the rows that requests record.
	Record Record `json:"record,omitzero"`
	// Replay selects which recorded choices (selections, experts) replayed rows use instead of computing them.
	Replay Replay `json:"replay,omitzero"`
	// Draws reports that the device samples tokens of rows that are not returned whole, with the parameters in the
	// input block.
	Draws bool `json:"draws,omitempty"`
	// PaddedRows is the number of rows that kernels process if the batch is padded; 0 means no padding. Batches of
	// decode, verify or draft requests are padded by whole requests.
	PaddedRows int       `json:"padded_rows,omitempty"`
	Graph      GraphMode `json:"graph"`
	// NeedSeed requests selection indices even if attention over every key (the dense form) does not need them.
	NeedSeed bool `json:"need_seed,omitempty"`
	// FreeBytes is the device memory that is free now; 0 means not measured.
	FreeBytes int64 `json:"free_bytes,omitempty"`
	// TablePages is the width of the page tables; 0 means the pages of the longest request, rounded up to a power of
	// two.
	TablePages int `json:"table_pages,omitempty"`
}

// Request is one sequence of the batch.
//
// Seq is a number of keys. It includes the new tokens in the modes extend, decode and draft, but excludes the N drafts
// in the mode verify. A decode, verify or draft request with Seq 0 is padding.
type Request struct {
	// Kind is the mode of the request in a mixed batch. In other batches it is unset or equal to the batch's mode.
	Kind   Mode `json:"kind,omitempty"`
	Seq    int  `json:"seq"`
	Prefix int  `json:"prefix,omitempty"` // extend: cached tokens
	Extend int  `json:"extend,omitempty"` // extend: new tokens; Seq = Prefix + Extend
	N      int  `json:"n,omitempty"`      // verify, draft: number of rows; 0 means Config.N
	// Logits is the number of last new tokens whose logits are computed.
	Logits int `json:"logits,omitempty"`
	// Best means that only the most probable token of these rows is returned; the logits stay on the device.
	Best bool `json:"best,omitempty"`
	// Padding means that a decode, verify or draft request only pads the batch: Seq is 0, and its rows store nothing
	// and attend to no key.
	Padding bool `json:"padding,omitempty"`
	// Rank is the rank that has the sequence's pages, if ranks divide attention by requests.
	Rank int `json:"rank,omitempty"`
	// Records is the number of new tokens that are recorded, from new token RecordFrom on. The plan depends on Records
	// but not on RecordFrom.
	Records    int `json:"records,omitempty"`
	RecordFrom int `json:"record_from,omitempty"`
	// Replays is the number of new tokens that replay recorded choices, from ReplayFrom on.
	Replays    int `json:"replays,omitempty"`
	ReplayFrom int `json:"replay_from,omitempty"`
}

// Record defines what a pass records of every layer; it is returned with the logits.
type Record struct {
	Hidden     bool `json:"hidden,omitempty"`     // residual rows after the layer
	Selections bool `json:"selections,omitempty"` // positions that the layer's indexer selects
	Scores     bool `json:"scores,omitempty"`     // indexer scores of the selected positions; needs Selections
	Experts    bool `json:"experts,omitempty"`    // chosen experts and their routing weights
}

// With returns the union of two records.
func (r Record) With(o Record) Record {
	return Record{r.Hidden || o.Hidden, r.Selections || o.Selections, r.Scores || o.Scores, r.Experts || o.Experts}
}

// Replay selects which recorded choices replayed rows use.
type Replay struct {
	Selections bool `json:"selections,omitempty"`
	Experts    bool `json:"experts,omitempty"`
}

// Pass selects the layers of a model that run.
type Pass uint8

// PassTarget runs the main layers. The other passes run the drafting layer: PassDraft reads hidden states of the
// target, PassChain those of the previous pass of the drafting layer. PassPick continues from the layer inputs of rows
// that a PassDraft without logits has stored. PassBlock drafts a block of tokens for every request at once
// (Model.Block); its rows are not part of the sequence.
const (
	PassTarget Pass = iota
	PassDraft
	PassChain
	PassPick
	PassBlock
)

var passes = enum[Pass]{"pass", []string{"target", "draft", "chain", "pick", "block"}}

func (p Pass) String() string                { return passes.text(p) }
func (p Pass) MarshalText() ([]byte, error)  { return passes.marshal(p) }
func (p *Pass) UnmarshalText(t []byte) error { return passes.unmarshal(p, t) }

// ExtendRequest returns a request that appends extend tokens to a prefix of prefix cached tokens.
func ExtendRequest(extend, prefix int) Request {
	return Request{Kind: ModeExtend, Seq: prefix + extend, Prefix: prefix, Extend: extend}
}

// DecodeRequest returns a request that decodes one token; seq includes this token.
func DecodeRequest(seq int) Request { return Request{Kind: ModeDecode, Seq: seq} }

// VerifyRequest returns a request that verifies n drafts; seq excludes the drafts.
func VerifyRequest(n, seq int) Request { return Request{Kind: ModeVerify, Seq: seq, N: n} }

// DraftRequest returns a request that runs n tokens through the drafting layer; seq includes these tokens.
func DraftRequest(n, seq int) Request { return Request{Kind: ModeDraft, Seq: seq, N: n} }

// NewBatch returns a batch of requests in the given mode.
func NewBatch(mode Mode, requests ...Request) Batch { return Batch{Mode: mode, Requests: requests} }

// Add appends a request, whose Kind is set. The batch gets the mode of its requests, or ModeMixed if their kinds
// differ.
func (b *Batch) Add(r Request) {
	if len(b.Requests) == 0 {
		b.Mode = r.Kind
	} else if b.Mode != r.Kind {
		b.Mode = ModeMixed
	}
	b.Requests = append(b.Requests, r)
}

// KindOf returns the mode of request i: its own kind in a mixed batch, the mode of the batch otherwise.
func (b *Batch) KindOf(i int) Mode {
	if b.Mode == ModeMixed {
		return b.Requests[i].Kind
	}
	return b.Mode
}
