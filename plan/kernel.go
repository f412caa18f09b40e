package plan

// Kernel names an implementation of attention in one of the two catalogues.
type Kernel uint8

// The kernels of the sparrow catalogue, then the kernels of the public catalogue.
const (
	KernelNone Kernel = iota

	DenseRagged // dense MHA over up-projected K and V
	SparseFlat  // sparse MLA over flat rows: the pool itself or gathered rows
	SparseBlock // sparse MLA over paged 656-byte FP8 rows
	SparseRaw   // sparse MLA over paged 576-byte FP8 rows
	Auto        // one of the sparse kernels, chosen for each batch
	V4Paged     // V4 attention over the paged window and compressed streams
	V4Flat      // V4 prefill over a gathered BF16 workspace
	DenseLatent // MLA in latent space over every key, in paged rows
	SparsePools // MLA without rotary embedding over the tokens of selected pools, in paged rows

	FlashMLASparse
	FlashMLASparseQ8
	FlashMLAKV
	FlashMLAAuto
	FlashInferSparseMLA
	FA3
	TileLang
	Aiter
	TRTLLM
	FlashVarlen  // dense MHA by variable-length flash attention
	TRTLLMRagged // dense MHA by the ragged TRT-LLM kernel
	V4PagedArch  // V4 paged attention of an architecture FlashMLA does not cover
	Reference    // supports every layout and device; used only if the user names it
)

var kernels = enum[Kernel]{"kernel", []string{
	"",
	"dense-ragged", "sparse-flat", "sparse-block", "sparse-raw", "auto", "v4-paged", "v4-flat",
	"dense-latent", "sparse-pools",
	"flashmla_sparse", "flashmla_sparse_q8", "flashmla_kv", "flashmla_auto", "flashinfer_sparse_mla",
	"fa3", "tilelang", "aiter", "trtllm", "flash_varlen", "trtllm_ragged", "v4_paged_arch",
	"reference",
}}

func (k Kernel) String() string                { return kernels.text(k) }
func (k Kernel) MarshalText() ([]byte, error)  { return kernels.marshal(k) }
func (k *Kernel) UnmarshalText(t []byte) error { return kernels.unmarshal(k, t) }
