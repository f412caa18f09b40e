// Package spark has the common parts of the DSpark draft heads of DeepSeek-V4 and V4.1 (dspark spec, 3).
//
// With X_l the residual streams at the tapped layers l_1, l_2, ..:
//
//	f(p) = mean over streams of X_l1, of X_l2, ..       side by side
//	u(p) = main_norm(main_proj · f(p))
//	c_k(p) = the window entry that stage k makes of u(p)
//
// Passes of the target compute these for all of their rows and store c_k with their own window entries. A block of B
// rows consists of the token that was sampled last, at position L, and noise tokens after it. In each stage k, its rows
// attend to c_k of the window before L and to each other. After the last stage, the streams of row i are combined to
// h_i. Then, with x_0 the token at L:
//
//	e_i     = before[x_i]
//	l_i     = head · norm(h_i) + after · e_i              logits of x_{i+1}, which is drafted
//	gamma_i = confidence · (h_i, e_i)                     how likely it is accepted, if x_i was
package spark

import (
	"fmt"
	"math"

	"sparrow/internal/attn"
	"sparrow/internal/attn/dual"
	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/internal/model/nn"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// Prefix begins the names of all tensors of the first stage.
const Prefix = "mtp.0."

// Head holds the weights before and after the stages, and the pools of the stages.
type Head struct {
	Norm       kernel.Tensor
	config     *config.V4
	main       kernel.Matrix // [hidden, taps*hidden]
	mainNorm   kernel.Tensor
	before     kernel.Matrix // [vocabulary, rank]: a row for the token before the drafted one
	after      kernel.Matrix // [vocabulary, rank]: a row for each token that may be drafted
	confidence kernel.Matrix // [1, hidden+rank]
	// base and scale are operands of kernel.HyperHeadArgs with which all streams have the same weight: scale is 0, and
	// sigmoid(base) + eps is 1/streams.
	base, scale kernel.Tensor

	Windows []kernel.Pool // pool of each stage's entries, with a page for each window page; empty without drafts
}

// Load reads the weights. before and after are the names of the two matrices of the Markov head.
func Load(l *nn.Loader, c *config.V4, before, after string) *Head {
	d := c.DSpark
	last := func(name string) string { return fmt.Sprintf("mtp.%d.%s", d.Stages-1, name) }
	h := &Head{config: c, main: l.Matrix(Prefix+"main_proj.weight", c.Hidden, len(d.Taps)*c.Hidden),
		mainNorm: l.Vector(Prefix+"main_norm.weight", c.Hidden), Norm: l.Vector(last("norm.weight"), c.Hidden)}
	l.Whole(func() { h.before = l.Table(last(before), c.Vocab, d.Rank) })
	h.after = l.Matrix(last(after), c.Vocab, d.Rank)
	h.confidence = l.Matrix(last("confidence_head.proj.weight"), 1, c.Hidden+d.Rank)
	return h
}

// Ready allocates base and scale.
func (h *Head) Ready(dev kernel.Device) (err error) {
	n := h.config.Hyper.Streams
	if h.base, err = kernel.New(dev, kernel.F32, 1, n); err != nil {
		return err
	}
	if h.scale, err = kernel.New(dev, kernel.F32, 1, 1); err != nil {
		return err
	}
	part := 1/float64(n) - float64(h.config.Hyper.Eps)
	base := make([]float32, n)
	for i := range base {
		base[i] = float32(math.Log(part / (1 - part)))
	}
	if err := kernel.WriteF32(dev, h.base, base); err != nil {
		return err
	}
	return kernel.WriteF32(dev, h.scale, []float32{0})
}

// Use makes the pools of the stages.
func (h *Head) Use(dev kernel.Device, entry layout.V4, page, windows int) error {
	for range h.config.DSpark.Stages {
		p, err := model.NewPool(dev, entry.Kind(), entry.PageBytes(page), windows, page)
		if err != nil {
			return err
		}
		h.Windows = append(h.Windows, p)
	}
	return nil
}

// Free frees the pools of the stages.
func (h *Head) Free(dev kernel.Device) {
	for _, p := range h.Windows {
		dev.Free(p.Mem.Buf)
	}
	h.Windows = nil
}

// TakeTaps takes the memory of the tapped hidden states of a pass of the target: [T, taps*hidden].
func (h *Head) TakeTaps(a *kernel.Arena, act kernel.DType, rows int) kernel.Tensor {
	return a.Take(act, rows, len(h.config.DSpark.Taps)*h.config.Hidden)
}

// Tap stores the mean of the streams at a layer in `to`, if the layer is tapped. mix is [T, streams] with any finite
// values.
func (h *Head) Tap(list *kernel.Builder, layer int, to, streams, mix kernel.Tensor) {
	c := h.config
	for j, l := range c.DSpark.Taps {
		if l == layer {
			list.At("features of the drafting stages", layer)
			list.Add(kernel.HyperHeadArgs{Out: to.Columns(j*c.Hidden, (j+1)*c.Hidden), X: streams, Mix: mix,
				Base: h.base, Scale: h.scale, Streams: c.Hyper.Streams, NormEps: c.RMSEps, Eps: c.Hyper.Eps})
		}
	}
}

// Context writes u, from which the stages compute their entries for the rows of the pass.
func (h *Head) Context(list *kernel.Builder, u, tapped kernel.Tensor) {
	list.At("context of the drafting stages", -1)
	list.Add(kernel.MultiplyArgs{Out: u, X: tapped, W: h.main})
	list.Add(kernel.NormArgs{Out: u, X: u, Weight: h.mainNorm, Eps: h.config.RMSEps})
}

// Block holds the tensors of a pass of the stages, in addition to those of the stages themselves.
type Block struct {
	joined  kernel.Tensor // [L, hidden+rank]: combined rows h, each with the Markov head's row for the token before it
	anchors kernel.Tensor // i32 [requests, 1]: the first token of each block
	batch   dual.BlockBatch
}

// Fits returns an error if a pass does not consist of whole blocks with logits for all rows.
func (h *Head) Fits(p *plan.Plan) error {
	if n := h.config.DSpark.Block; p.Rows%n != 0 || p.Logits != p.Rows {
		return fmt.Errorf("the pass has %d rows, %d with logits; want whole blocks of %d rows, all with logits",
			p.Rows, p.Logits, n)
	}
	return nil
}

// TakeBlock takes the tensors of a Block from an arena.
func (h *Head) TakeBlock(a *kernel.Arena, act kernel.DType, p *plan.Plan) Block {
	d := h.config.DSpark
	return Block{joined: a.Take(act, p.Logits, h.config.Hidden+d.Rank), anchors: a.Take(kernel.I32, p.Rows/d.Block, 1)}
}

// Collapsed returns the columns of b.joined for the combined rows h, [L, hidden].
func (h *Head) Collapsed(b *Block) kernel.Tensor { return b.joined.Columns(0, h.config.Hidden) }

// Prepare fills the input block. Rows of logits are ordered by their position in the block, so that rows at the same
// position, whose tokens are drafted together, are adjacent.
func (h *Head) Prepare(b *Block, pass *dual.BlockPass, in *model.Input, to attn.Block) error {
	if len(h.Windows) == 0 {
		return fmt.Errorf("the drafting stages have no cache; allocate with a configuration that verifies more than " +
			"one row")
	}
	if err := to.FillBlocks(&in.Batch); err != nil {
		return err
	}
	tokens, logits, requests := to.Array(plan.TokenIDs), to.Array(plan.LogitRows), b.anchors.Rows
	b.batch = dual.BlockBatch{Batch: &in.Batch, Windows: in.Windows, Pages: h.Windows[0].Pages()}
	return pass.Prepare(&b.batch, to, func(row, request, place int) error {
		tokens[row], logits[place*requests+request] = int32(h.config.DSpark.Noise), int32(row)
		if place > 0 {
			return nil
		}
		if len(in.Tokens[request]) != 1 && !in.Batch.Batch.Requests[request].Padding {
			return fmt.Errorf("the request has %d tokens, want one, with which the block begins",
				len(in.Tokens[request]))
		}
		tokens[row] = in.Tokens[request][0]
		return attn.CheckToken(tokens[row], h.config.Vocab)
	})
}

// Chain drafts the tokens of all blocks, position by position, because each token depends on the previous token. ids
// holds the tokens of the pass. The product of the combined rows with the head must have been computed before.
func (h *Head) Chain(list *kernel.Builder, b *Block, head *model.Head, ids, confidence kernel.Tensor) {
	n := b.anchors.Rows
	list.At("Markov head", -1)
	list.Add(kernel.TakeArgs{Out: b.anchors, X: ids, Rows: head.Rows().Slice(0, n)})
	before := b.anchors
	for i := range h.config.DSpark.Block {
		e := b.joined.Columns(h.config.Hidden, b.joined.Cols).Slice(i*n, (i+1)*n)
		list.Add(kernel.EmbedArgs{Out: e, Table: h.before, IDs: before})
		list.Add(kernel.MultiplyArgs{Out: head.Of(i*n, (i+1)*n), X: e, W: h.after, Accumulate: true})
		before = head.Choose(list, i*n, (i+1)*n)
	}
	list.At("confidence head", -1)
	list.Add(kernel.MultiplyArgs{Out: confidence, X: b.joined, W: h.confidence})
}
