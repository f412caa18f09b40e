package synth

import (
	"fmt"
	"math"

	"sparrow/internal/model/config"
	"sparrow/weight"
)

// tensor is one tensor of the checkpoint, or one block-quantised matrix with its scales.
type tensor struct {
	name   string
	shape  []int
	dtype  weight.DType
	store  storage
	scale  string // name of the tensor with the scales, if there is one
	like   string // name of the tensor with the same values; the tensor's own name if there is none
	limit  int    // number of experts for an expertTable, or of keys for a tokenMap
	side   int    // rows and columns of the blocks with one scale; 0 means 128
	mean   float64
	spread float64           // standard deviation of the values
	nextN  bool              // whether the tensor belongs to the drafting layer
	linear bool              // whether releases that name no modules quantise the matrix
	kind   config.ModuleType // type of the values if storage is released
}

// storage is the form in which the values of a tensor are written.
type storage uint8

const (
	plainValues  storage = iota // values of dtype
	blockFP8                    // F8E4M3 with a float32 scale for each 128 x 128 block
	blockFP8E8                  // F8E4M3 with an E8M0 scale (a power of two) for each block
	groupFP4                    // pairs of E2M1 in I8, with an exponent for each 32 values of a row
	expertTable                 // I64 [vocabulary, k]: k different experts for each token
	rowFP8                      // F8E4M3 with an exponent for each 32 values of a row
	tokenMap                    // I32 [vocabulary]: a key for each token
	released                    // the form that kind describes; without values (described.go)
	groupInt4                   // pairs of codes in I32, with a bf16 scale for each 32 values of a row (int4.go)
	expertBlocks                // a block format of GGUF files; its values are random and never written (blocks.go)
)

// Gains are factors of the standard deviation with which activations keep their size.
const (
	headGain   = 2.0  // logits have a standard deviation of about 2, so that one token is clearly the most likely
	normSpread = 0.05 // standard deviation around 1, so that omitting a norm weight changes the result
	biasSpread = 0.02
)

// lister collects the tensors of a model, as in the table of the v32 spec, 4.2.
type lister struct {
	c     *config.DSA
	fp8   bool
	int4  bool // whether routed experts are int4
	nextN bool
	list  []tensor

	embedSpread, headSpread float64
}

func listTensors(c *config.DSA, d DType) []tensor {
	// Rows of the embedding have a root mean square of 1, like the outputs of norms. A tied table must have the
	// deviation of the head.
	l := &lister{c: c, fp8: d == FP8, int4: d == Int4, embedSpread: 1, list: spaceFor(&c.Config, c.FFN.Experts),
		headSpread: headGain / math.Sqrt(float64(c.Hidden))}
	embed, head := "model.embed_tokens.weight", "lm_head.weight"
	if c.TiedHead {
		head, l.embedSpread = embed, l.headSpread
	}
	l.table(embed, embed, l.embedSpread)
	if !c.TiedHead {
		l.table(head, head, l.headSpread)
	}
	l.norm("model.norm.weight", c.Hidden)
	for i := range c.Layers {
		l.layer(i)
	}
	if c.NextN > 0 {
		l.nextN = true
		l.draft(embed, head)
	}
	return l.list
}

// spaceFor returns an empty list with space for the tensors of a model, of which a layer has three for each expert. The
// space is limited, because a config.json may have any numbers.
func spaceFor(c *config.Config, experts int) []tensor {
	return make([]tensor, 0, min((c.Layers+1)*(3*min(experts, 1<<10)+64), 1<<17))
}

func (l *lister) add(t tensor) {
	if t.like == "" {
		t.like = t.name
	}
	t.nextN = l.nextN
	l.list = append(l.list, t)
}

// table adds a matrix [vocabulary, hidden], which is never quantised.
func (l *lister) table(name, like string, spread float64) {
	l.add(tensor{name: name, like: like, shape: []int{l.c.Vocab, l.c.Hidden}, dtype: weight.BF16, spread: spread})
}

// norm adds a vector of weights around 1.
func (l *lister) norm(name string, n int) {
	l.add(tensor{name: name, shape: []int{n}, dtype: weight.BF16, mean: 1, spread: normSpread})
}

// plain adds a matrix [out, in] that is BF16 also in FP8 checkpoints.
func (l *lister) plain(name string, out, in int) {
	l.add(tensor{name: name, shape: []int{out, in}, dtype: weight.BF16, spread: 1 / math.Sqrt(float64(in))})
}

// matrix adds a matrix [out, in] that FP8 checkpoints store in blocks. With the standard deviation 1/sqrt(in), outputs
// have the size of inputs.
func (l *lister) matrix(name string, out, in int, gain float64) {
	t := tensor{name: name, shape: []int{out, in}, dtype: weight.BF16, spread: gain / math.Sqrt(float64(in)),
		linear: true}
	if l.fp8 {
		t.dtype, t.store, t.scale = weight.F8E4M3, blockFP8, name+"_scale_inv"
	}
	l.add(t)
}

// residual returns the gain of matrices whose outputs are added to the residual stream, two in each layer. With it, the
// size of the residual stream stays about the same.
func (l *lister) residual() float64 { return 1 / math.Sqrt(2*float64(l.c.Layers)) }

func (l *lister) layer(i int) {
	p := fmt.Sprintf("model.layers.%d.", i)
	l.norm(p+"input_layernorm.weight", l.c.Hidden)
	l.norm(p+"post_attention_layernorm.weight", l.c.Hidden)
	l.attention(p+"self_attn.", l.c.Indexer.Computes(i))
	if i < l.c.Layers && l.c.FFN.Dense[i] {
		l.mlp(p+"mlp.", l.c.FFN.DenseInner)
		return
	}
	l.experts(p + "mlp.")
}

func (l *lister) attention(p string, indexer bool) {
	a, h := l.c.Attention, l.c.Hidden
	if a.QLora == 0 {
		l.matrix(p+"q_proj.weight", a.Heads*a.QK(), h, 1)
	} else {
		l.matrix(p+"q_a_proj.weight", a.QLora, h, 1)
		l.norm(p+"q_a_layernorm.weight", a.QLora)
		l.matrix(p+"q_b_proj.weight", a.Heads*a.QK(), a.QLora, 1)
	}
	l.matrix(p+"kv_a_proj_with_mqa.weight", a.Latent+a.Rope, h, 1)
	l.norm(p+"kv_a_layernorm.weight", a.Latent)
	l.matrix(p+"kv_b_proj.weight", a.Heads*(a.Nope+a.V), a.Latent, 1)
	l.matrix(p+"o_proj.weight", h, a.Heads*a.V, l.residual())
	if !indexer {
		return
	}
	x := l.c.Indexer
	l.matrix(p+"indexer.wq_b.weight", x.Heads*x.Dim, a.QLora, 1)
	l.matrix(p+"indexer.wk.weight", x.Dim, h, 1)
	l.plain(p+"indexer.weights_proj.weight", x.Heads, h)
	l.add(tensor{name: p + "indexer.k_norm.weight", shape: []int{x.Dim}, dtype: weight.F32, mean: 1,
		spread: normSpread})
	l.add(tensor{name: p + "indexer.k_norm.bias", shape: []int{x.Dim}, dtype: weight.F32, spread: biasSpread})
}

func (l *lister) mlp(p string, inner int) {
	l.matrix(p+"gate_proj.weight", inner, l.c.Hidden, 1)
	l.matrix(p+"up_proj.weight", inner, l.c.Hidden, 1)
	l.matrix(p+"down_proj.weight", l.c.Hidden, inner, l.residual())
}

func (l *lister) experts(p string) {
	f := l.c.FFN
	l.plain(p+"gate.weight", f.Experts, l.c.Hidden)
	l.add(tensor{name: p + "gate.e_score_correction_bias", shape: []int{f.Experts}, dtype: weight.F32,
		spread: biasSpread})
	for e := range f.Experts {
		l.mlp(fmt.Sprintf("%sexperts.%d.", p, e), f.Inner)
	}
	if l.int4 {
		for i := range 3 * f.Experts {
			l.list[len(l.list)-1-i].store = groupInt4
		}
	}
	if f.Shared > 0 {
		l.mlp(p+"shared_experts.", f.Inner*f.Shared)
	}
}

// draft lists the tensors of the drafting layer (v32 spec, 3.1). DeepSeek's layer has copies of the embedding and the
// head, GLM's layer does not.
func (l *lister) draft(embed, head string) {
	h := l.c.Hidden
	p := fmt.Sprintf("model.layers.%d.", l.c.Layers)
	l.layer(l.c.Layers)
	l.norm(p+"enorm.weight", h)
	l.norm(p+"hnorm.weight", h)
	l.plain(p+"eh_proj.weight", h, 2*h)
	l.norm(p+"shared_head.norm.weight", h)
	if l.c.Family == config.DeepseekV32 || l.c.Family == config.DeepseekV3 {
		l.table(p+"embed_tokens.weight", embed, l.embedSpread)
		l.table(p+"shared_head.head.weight", head, l.headSpread)
	}
}
