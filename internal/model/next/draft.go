package next

import (
	"fmt"
	"strings"

	"sparrow/internal/attn"
	"sparrow/internal/model"
	"sparrow/internal/model/nn"
	"sparrow/kernel"
	"sparrow/plan"
)

// draftLayer is the drafting layer (glm53flash spec, 7): one residual stream, sparse attention. With x the tokens, g
// the mean of the target's residual streams after its last norm:
//
//	u_t = eh_proj · [enorm(embed[x_{t+1}]) ; hnorm(g_t)]
//	z_t = layer(u_t) at position t
//	m_t = norm(z_t)
//
// and head · m_t are the logits of x_{t+2}. The next pass of a chain uses m_t instead of g_{t+1}. Embedding and head
// are the target's.
type draftLayer struct {
	layer               layer
	enorm, hnorm, final kernel.Tensor
	project             kernel.Matrix // [hidden, 2*hidden]
}

// loadDraft reads the drafting layer, whose tensor names begin with p, if the checkpoint has it.
func (m *Model) loadDraft(l *nn.Loader, p, prefix string) {
	c := m.config
	if c.NextN == 0 || !l.HasPrefix(p) {
		l.Skip("drafting layer; config.json has none", func(name string) bool { return strings.HasPrefix(name, p) })
		return
	}
	m.draft = &draftLayer{
		layer:   loadLayer(c, l, prefix, c.Layers),
		enorm:   l.Vector(p+"enorm.weight", c.Hidden),
		hnorm:   l.Vector(p+"hnorm.weight", c.Hidden),
		project: l.Matrix(p+"eh_proj.weight", c.Hidden, 2*c.Hidden),
		final:   l.Vector(p+"shared_head.norm.weight", c.Hidden),
	}
}

// DraftHead returns nil if the checkpoint has a drafting layer.
func (m *Model) DraftHead() error {
	if m.draft != nil {
		return nil
	}
	p := fmt.Sprintf("%slayers.%d.", prefixes[0], m.config.Layers)
	return plan.ErrDraftHeadMissing("this checkpoint", m.config.Layers,
		p+"{enorm,hnorm,eh_proj,shared_head.norm,self_attn.*,mlp.*}")
}

// drafts reports whether a configuration uses the drafting layer.
func (m *Model) drafts(cfg *plan.Config) bool { return m.draft != nil && cfg.N > 1 }

// draft holds the tensors of a pass of the drafting layer.
type draft struct {
	pass
	rows       kernel.Tensor // i32 [T, 1]: for each row, the row of the hidden states that it reads
	from       kernel.Tensor // [T, streams*hidden]: the target's residual streams
	e, g, x, u kernel.Tensor // [T, hidden]: embeddings, hidden states, normalised rows, the layer's residual rows
	pair       kernel.Tensor // [T, 2*hidden]: e and g, normalised and joined
	m          kernel.Tensor // [T, hidden]: outputs of the layer, which the next pass of a chain reads
}

func (w *workspace) arrangeDraft(p *plan.Plan, cfg *plan.Config, a *kernel.Arena) (model.Pass, error) {
	m := w.m
	if err := m.DraftHead(); err != nil {
		return nil, err
	}
	if p.Pass == plan.PassPick {
		return nil, fmt.Errorf("next: draft: rows that are picked on the device are not supported by %s",
			m.config.Family)
	}
	act, h := m.Dev.Activation(), m.config.Hidden
	d := &draft{m: w.drafted.mem.Slice(0, p.Rows)}
	d.begin(w, p, cfg, a, h)
	d.u, d.x = a.Take(act, p.Rows, h), a.Take(act, p.Rows, h)
	if err := d.arrange(cfg, a, []layer{m.draft.layer}); err != nil {
		return nil, err
	}
	d.rows = d.in.Array(plan.HiddenRows)
	// The inputs of the layer use the same memory as later operations of the pass: they are computed first.
	d.e, d.g, d.pair = a.Take(act, p.Rows, h), a.Take(act, p.Rows, h), a.Take(act, p.Rows, 2*h)
	d.from = a.Take(act, p.Rows, m.config.Hyper.Streams*h)
	a.Reset(d.attn.Kept)
	d.head = model.TakeHead(p, a, d.in, d.out, model.HeadShape{Activation: act, Width: h, Ranks: 1})
	return d, nil
}

func (d *draft) Prepare(in *model.Input, words []int32) error {
	m, block := d.pass.m, attn.NewBlock(d.plan, words)
	if len(m.caches) == len(m.layers) {
		return fmt.Errorf("next: draft: the drafting layer has no cache; allocate with a configuration that verifies " +
			"more than one row")
	}
	if err := d.prepare(in, block); err != nil {
		return fmt.Errorf("next: draft: %w", err)
	}
	to, from := block.Array(plan.HiddenRows), d.source().rows
	err := in.Rows(func(r attn.Row) (err error) {
		to[r.Index], err = in.HiddenRow(r.Request, r.Token, from)
		return err
	})
	if err != nil {
		return fmt.Errorf("next: %w", err)
	}
	d.work.drafted.rows = 0
	return nil
}

// source returns the hidden states that the pass reads: the target's residual streams, or in a chain the outputs of the
// drafting layer.
func (d *draft) source() *residual {
	if d.plan.Pass == plan.PassChain {
		return &d.work.drafted
	}
	return &d.work.streams
}

// Program returns the operations of the layer. If no logits are requested, it only stores rows and pooled keys.
func (d *draft) Program() (kernel.Program, error) { return d.made.Program(d.pass.m.moved(), d.build) }

func (d *draft) build() (kernel.Program, error) {
	m := d.pass.m
	n, c := m.draft, m.config
	eps, h, cache := c.RMSEps, c.Hidden, m.caches[c.Layers]
	d.list.At("drafting layer", -1)
	if d.plan.Pass == plan.PassChain { // hidden states of a chain are already normalised
		d.list.Add(kernel.TakeArgs{Out: d.g, X: d.source().mem, Rows: d.rows})
	} else {
		d.list.Add(kernel.TakeArgs{Out: d.from, X: d.source().mem, Rows: d.rows})
		d.list.Add(kernel.MeanStreamsArgs{Out: d.g, X: d.from, Streams: c.Hyper.Streams})
		d.list.Add(kernel.NormArgs{Out: d.g, X: d.g, Weight: m.norm, Eps: eps})
	}
	d.list.Add(kernel.EmbedArgs{Out: d.e, Table: m.embed, IDs: d.ids})
	d.list.Add(kernel.NormArgs{Out: d.pair.Columns(0, h), X: d.e, Weight: n.enorm, Eps: eps})
	d.list.Add(kernel.NormArgs{Out: d.pair.Columns(h, 2*h), X: d.g, Weight: n.hnorm, Eps: eps})
	d.list.Add(kernel.MultiplyArgs{Out: d.u, X: d.pair, W: n.project})
	d.list.Add(kernel.NormArgs{Out: d.x, X: d.u, Weight: n.layer.inputNorm, Eps: eps})
	if d.plan.Logits == 0 {
		d.attn.Store(c.Layers, n.layer.attn, cache, d.x)
		return d.list.Compile()
	}
	d.attn.Layer(c.Layers, n.layer.attn, cache, d.u, d.x, true, d.choices.Tap(c.Layers))
	d.list.At("feed-forward of the drafting layer", -1)
	d.list.Add(kernel.NormArgs{Out: d.x, X: d.u, Weight: n.layer.postNorm, Eps: eps})
	d.feedForward(c.Layers, &n.layer, d.u, d.x)
	d.list.At("head of the drafting layer", -1)
	d.list.Add(kernel.NormArgs{Out: d.m, X: d.u, Weight: n.final, Eps: eps})
	d.head.Logits(d.list, d.head.Pick(d.list, d.m), m.head)
	return d.list.Compile()
}

// Ended makes the outputs of this pass valid as inputs of the next pass of a chain, unless the pass failed.
func (d *draft) Ended(err error) {
	if err == nil {
		d.work.drafted.rows = d.plan.Rows
	}
}
