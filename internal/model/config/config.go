package config

import (
	"fmt"

	"sparrow/weight"
)

// Family is a model architecture.
type Family string

const (
	DeepseekV32 Family = "deepseek_v32"
	GLMMoeDSA   Family = "glm_moe_dsa"
	DeepseekV4  Family = "deepseek_v4"
	DeepseekV41 Family = "deepseek_v41"

	// Without an indexer: every row attends to every key.
	DeepseekV3  Family = "deepseek_v3"
	KimiK2      Family = "kimi_k2"
	KimiK25     Family = "kimi_k25"
	GLM4MoeLite Family = "glm4_moe_lite"

	// GLM-5.3-Flash: linear attention in most layers, and in the others sparse attention with index keys for pools of
	// tokens.
	GLM5Next Family = "glm5_next"
)

// Families lists the families that this build can run.
func Families() []Family {
	return []Family{DeepseekV32, GLMMoeDSA, DeepseekV4, DeepseekV41, DeepseekV3, KimiK2, KimiK25, GLM4MoeLite,
		GLM5Next}
}

// Dense reports whether models of the family have MLA without an indexer.
func (f Family) Dense() bool {
	return f == DeepseekV3 || f == KimiK2 || f == KimiK25 || f == GLM4MoeLite
}

// Config holds the properties that models of all families have.
type Config struct {
	Family       Family
	Vocab        int
	Hidden       int
	Layers       int
	MaxPositions int
	RMSEps       float32
	TiedHead     bool          // the head is the embedding
	Indexer      Indexer       // indexer of all DSA layers and of V4 layers of ratio 4; zero for dense models
	NextN        int           // number of drafting layers, which follow the main layers
	Format       Format        // format of the matrices
	Scheme       weight.Scheme // properties of the matrices that only config.json states
	FP8          bool          // matrices are FP8 with block scales; set only for DSA, like Pow2Rows
	Pow2Rows     bool          // rows that are quantised for products with FP8 weights get power-of-two scales

	// Losses lists the parts of the checkpoint that are not run or are ignored, each as a sentence.
	Losses []string

	BOS   *int
	EOS   []int
	Pad   *int
	Image *int // token for parts of images, which are not supported: no prompt may contain it; may be nil
}

// Common returns c: the properties that do not depend on the family.
func (c *Config) Common() *Config { return c }

// Description is a checked config.json of some family: *DSA, *V4, *V41 or *Next.
type Description interface{ Common() *Config }

// DSA describes a model of the DSA families, or of the families with the same network without an indexer. Names of
// fields follow the v32 spec, 1.1.
type DSA struct {
	Config
	LatentEps float32 // epsilon of q_a_layernorm and kv_a_layernorm
	Attention Attention
	Rope      Rope
	FFN       FFN
}

// Attention holds the sizes of multi-head latent attention.
type Attention struct {
	Heads  int
	QLora  int // rank of the query projection, 0 for a single matrix
	Latent int // rank of keys and values: 512
	Nope   int
	Rope   int
	V      int
}

// QK returns the size of an expanded query or key head.
func (a Attention) QK() int { return a.Nope + a.Rope }

// Indexer describes the selection of keys. Without an indexer every field is zero.
type Indexer struct {
	Heads       int
	Dim         int    // 128
	TopK        int    // maximum number of keys that a query attends to
	Shared      []bool // for each layer: it reuses the selection of the last layer before it that computed one
	Interleaved bool   // pairing of the rotated half of a head; false means half-split
	ShareDraft  bool   // later draft steps reuse the first step's selection
}

// Computes reports whether layer i runs its own indexer. Drafting layers do if any layer does.
func (x Indexer) Computes(i int) bool { return x.TopK > 0 && (i >= len(x.Shared) || !x.Shared[i]) }

// FFN describes the feed-forward blocks.
type FFN struct {
	Dense      []bool // for each layer: it has one dense block instead of experts
	DenseInner int
	Inner      int // inner size of one expert
	Experts    int
	Shared     int // number of shared experts, used for every token
	TopK       int
	Groups     int
	KeepGroups int
	Normalize  bool
	Scale      float32
}

// Problems lists every problem of one config.json.
type Problems struct {
	File string
	List []string
}

func (p *Problems) Error() string {
	s := fmt.Sprintf("config: %s: %d problem", p.File, len(p.List))
	if len(p.List) != 1 {
		s += "s"
	}
	for _, l := range p.List {
		s += "\n  " + l
	}
	return s
}
