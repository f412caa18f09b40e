package plan

// Mode is the work of one scheduled batch, or of one request of a mixed batch.
type Mode uint8

// The modes of dispatch section 2. Request.Seq has a different meaning in each: see Request.
const (
	ModeUnset        Mode = iota
	ModeExtend            // new prompt tokens, with or without a cached prefix
	ModeMixed             // extends together with other requests in one batch
	ModeDecode            // one new token per request
	ModeVerify            // n draft tokens per request, verified by the main layers
	ModeDraft             // n tokens per request, through the draft layer
	ModeIdle              // rank without rows, which still joins collective operations
	ModeSplitPrefill      // an extend that runs the layers in several groups
	ModeDLLMExtend        // an extend of a diffusion language model
)

var modes = enum[Mode]{"mode",
	[]string{"", "extend", "mixed", "decode", "verify", "draft", "idle", "split-prefill", "dllm-extend"}}

func (m Mode) String() string                { return modes.text(m) }
func (m Mode) MarshalText() ([]byte, error)  { return modes.marshal(m) }
func (m *Mode) UnmarshalText(t []byte) error { return modes.unmarshal(m, t) }

// ExtendLike reports whether the mode appends prompt tokens: such batches use the prefill kernel and the ragged
// indexer; others use the decode kernel.
func (m Mode) ExtendLike() bool {
	return m == ModeExtend || m == ModeMixed || m == ModeSplitPrefill || m == ModeDLLMExtend
}

// DecodeLike reports whether every request has the same fixed number of rows: decode, verify or draft.
func (m Mode) DecodeLike() bool { return m == ModeDecode || m == ModeVerify || m == ModeDraft }

// RowKind is the kind of a segment's rows.
type RowKind uint8

// A segment of the catalogue sparrow has rows of one of these kinds; a segment of the public catalogue has all rows of
// a batch.
const (
	RowUnset RowKind = iota
	RowWhole
	RowDensePrefill  // prompt row with at most Config.T keys, computed in the dense form
	RowShortPrefill  // prompt row with at most K keys, sparse form
	RowSparsePrefill // prompt row with more than K keys, among which the indexer selects
	RowLatentPrefill // prompt row of a dense model with more than Config.T keys
	RowDecode
	RowVerify
	RowDraft
)

var rowKinds = enum[RowKind]{"row kind",
	[]string{"", "whole", "dense-prefill", "short-prefill", "sparse-prefill", "latent-prefill", "decode",
		"verify", "draft"}}

func (r RowKind) String() string                { return rowKinds.text(r) }
func (r RowKind) MarshalText() ([]byte, error)  { return rowKinds.marshal(r) }
func (r *RowKind) UnmarshalText(t []byte) error { return rowKinds.unmarshal(r, t) }

// DecodeLike reports whether the rows use the decode kernel.
func (r RowKind) DecodeLike() bool { return r == RowDecode || r == RowVerify || r == RowDraft }

// Form is the method by which attention is computed.
type Form uint8

// The forms of dispatch section 3.
const (
	FormEmpty           Form = iota // there are no rows
	FormDenseMHA                    // latents up-projected to per-head K and V, plain causal attention
	FormSparseMLA                   // queries in latent space, [rows, K] selected keys
	FormV4Paged                     // V4: over paged window entries and, in most layers, compressed entries
	FormV4SparsePrefill             // V4: combined indices into a gathered BF16 workspace
	FormDenseMLA                    // queries in latent space, every key of the row's pages
)

var forms = enum[Form]{"form",
	[]string{"empty", "dense-mha", "sparse-mla", "v4-paged", "v4-sparse-prefill", "dense-mla"}}

// EveryKey reports whether rows of the form attend to every key, without a selection.
func (f Form) EveryKey() bool { return f == FormDenseMHA || f == FormDenseMLA }

func (f Form) String() string                { return forms.text(f) }
func (f Form) MarshalText() ([]byte, error)  { return forms.marshal(f) }
func (f *Form) UnmarshalText(t []byte) error { return forms.unmarshal(f, t) }

// Transform is the way in which selected positions are converted to indices of a KV tensor.
type Transform uint8

// TransformPaged gives physical cache slots, TransformRagged rows of a tensor gathered for the batch.
const (
	TransformNone Transform = iota
	TransformPaged
	TransformRagged
)

var transforms = enum[Transform]{"transform", []string{"none", "paged", "ragged"}}

func (x Transform) String() string                { return transforms.text(x) }
func (x Transform) MarshalText() ([]byte, error)  { return transforms.marshal(x) }
func (x *Transform) UnmarshalText(t []byte) error { return transforms.unmarshal(x, t) }

// Convert is the conversion of cached rows before the kernel reads them.
type Convert uint8

// GatherRows decodes the cached row of every key, of the prefix or new, into contiguous rows. GatherBF16 does the same
// into BF16 rows. RawToBlock rewrites only the referenced 576-byte pages as 656-byte pages. GatherRequant gathers and
// requantises with one scale per tensor.
const (
	ConvertNone Convert = iota
	ConvertGatherRows
	ConvertGatherBF16
	ConvertRawToBlock
	ConvertGatherRequant
)

var converts = enum[Convert]{"conversion",
	[]string{"none", "gather-rows", "gather-bf16", "raw-to-block", "gather-requant"}}

func (c Convert) String() string                { return converts.text(c) }
func (c Convert) MarshalText() ([]byte, error)  { return converts.marshal(c) }
func (c *Convert) UnmarshalText(t []byte) error { return converts.unmarshal(c, t) }

// Gathers reports whether the conversion copies rows into a contiguous tensor.
func (c Convert) Gathers() bool {
	return c == ConvertGatherRows || c == ConvertGatherBF16 || c == ConvertGatherRequant
}

// IndexerKind is the way in which a segment gets its selected indices.
type IndexerKind uint8

// The indexer paths of dispatch sections 6 and 12.
const (
	IndexerNone             IndexerKind = iota // no indexer runs and no indices are passed on
	IndexerCarry                               // shared layer: the indices of the last layer that computed some
	IndexerKOnly                               // indexer keys are stored; no scores and no indices are computed
	IndexerKOnlyWithIndices                    // indexer keys are stored; every visible key is selected without scores
	IndexerRagged                              // scores over gathered keys, in row chunks
	IndexerPagedSplit                          // scores over pages, one query row at a time
	IndexerPagedNative                         // scores over pages, n query rows per request at once
	IndexerContiguous                          // V4: scores over one request's contiguous compressed keys
)

var indexerKinds = enum[IndexerKind]{"indexer path",
	[]string{"none", "carry", "k-only", "k-only-with-indices", "ragged", "paged-split", "paged-native", "contiguous"}}

func (k IndexerKind) String() string                { return indexerKinds.text(k) }
func (k IndexerKind) MarshalText() ([]byte, error)  { return indexerKinds.marshal(k) }
func (k *IndexerKind) UnmarshalText(t []byte) error { return indexerKinds.unmarshal(k, t) }

// GraphMode states whether, and how, the batch runs in a captured graph.
type GraphMode uint8

// Capture and Replay are for whole batches of decode, verify or draft requests. Piecewise is for prefill: attention and
// indexer run between the parts of the graph.
const (
	GraphNone GraphMode = iota
	GraphCapture
	GraphReplay
	GraphPiecewise
)

var graphModes = enum[GraphMode]{"graph mode", []string{"none", "capture", "replay", "piecewise"}}

func (g GraphMode) String() string                { return graphModes.text(g) }
func (g GraphMode) MarshalText() ([]byte, error)  { return graphModes.marshal(g) }
func (g *GraphMode) UnmarshalText(t []byte) error { return graphModes.unmarshal(g, t) }

// Variant distinguishes two graphs that have the same mode and size.
type Variant uint8

// VariantShort is for decode, verify and draft segments in which no request has more than K keys: every key is selected
// without scores. VariantLong is for all others, if two graphs per size are captured.
const (
	VariantOnly Variant = iota
	VariantShort
	VariantLong
)

var variants = enum[Variant]{"graph variant", []string{"only", "short", "long"}}

func (v Variant) String() string                { return variants.text(v) }
func (v Variant) MarshalText() ([]byte, error)  { return variants.marshal(v) }
func (v *Variant) UnmarshalText(t []byte) error { return variants.unmarshal(v, t) }

// Switch is a setting with three values: on, off, and unset, which lets Resolve decide.
type Switch uint8

// Values of a Switch. SwitchUnset means that Resolve decides.
const (
	SwitchUnset Switch = iota
	SwitchOn
	SwitchOff
)

var switches = enum[Switch]{"switch", []string{"", "on", "off"}}

func (s Switch) String() string                { return switches.text(s) }
func (s Switch) MarshalText() ([]byte, error)  { return switches.marshal(s) }
func (s *Switch) UnmarshalText(t []byte) error { return switches.unmarshal(s, t) }
