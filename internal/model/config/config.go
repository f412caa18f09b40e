package config

import (
	"fmt"

	"sparrow/weight"
)

// Family is a model architecture.
type Family string

// The supported families.
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

	// Linear attention in some layers, sparse attention over pooled index keys in others: GLM-5.3-Flash.
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

// Config has the fields common to all families, which a scheduler, a sampler or a report needs.
type Config struct {
	Family       Family
	Vocab        int
	Hidden       int
	Layers       int
	MaxPositions int
	RMSEps       float32
	TiedHead     bool          // the head is the embedding
	Indexer      Indexer       // indexer of all DSA layers and of V4 layers of ratio 4; zero for dense models
	NextN        int           // layers after the main layers that draft tokens
	Format       Format        // format of the matrices
	Scheme       weight.Scheme // properties of the matrices that only config.json states
	FP8          bool          // matrices are FP8 blocks; only set for DSA, like Pow2Rows
	Pow2Rows     bool          // rows that a device quantises for FP8 weights have scales that are powers of two

	// Losses are the parts of the checkpoint that do not run or are ignored: a sentence each.
	Losses []string

	BOS   *int
	EOS   []int
	Pad   *int
	Image *int // token for parts of images, which are not read: no prompt may contain it; nil if there is none
}

// Common returns the part that does not depend on the family.
func (c *Config) Common() *Config { return c }

// Description is a checked config.json of some family: *DSA, *V4, *V41 or *Next.
type Description interface{ Common() *Config }

// DSA describes a model of the DSA families, or of the similar families without an indexer. Names follow the v32 spec,
// 1.1.
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
	TopK        int    // keys each query may attend to
	Shared      []bool // for each layer: reuses the selection of the nearest layer before it that computed one
	Interleaved bool   // pairing of the rotated half; false means half-split
	ShareDraft  bool   // later draft steps reuse the first step's selection
}

// Computes reports whether layer i runs its own indexer. Layers after the main layers do if any layer does.
func (x Indexer) Computes(i int) bool { return x.TopK > 0 && (i >= len(x.Shared) || !x.Shared[i]) }

// FFN describes the feed-forward blocks.
type FFN struct {
	Dense      []bool // for each layer: one dense block instead of experts
	DenseInner int
	Inner      int // inner width of one expert
	Experts    int
	Shared     int // shared experts, used for every token
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
