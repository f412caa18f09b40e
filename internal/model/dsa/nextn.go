package dsa

import (
	"fmt"
	"strings"

	"sparrow/internal/attn"
	"sparrow/internal/attn/mla"
	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/internal/model/nn"
	"sparrow/kernel"
	"sparrow/plan"
)

// nextN is the drafting layer (v32 spec, 3). With x the tokens, g the target's final hidden states after its last norm:
//
//	u_t = eh_proj · [enorm(embed[x_{t+1}]) ; hnorm(g_t)]
//	z_t = layer(u_t) at position t
//	m_t = norm(z_t)
//
// and head · m_t are the logits of x_{t+2}. The next pass of a chain uses m_t instead of g_{t+1}.
type nextN struct {
	layer               layer
	embed, head         kernel.Matrix // matrices of the drafting layer if it has any, otherwise the target's
	enorm, hnorm, final kernel.Tensor
	project             kernel.Matrix // [hidden, 2*hidden]
	cache               mla.Cache
}

// draftPrefix returns the prefix of the names of the drafting layer's tensors.
func draftPrefix(c *config.DSA) string { return fmt.Sprintf("model.layers.%d.", c.Layers) }

// loadNextN reads the drafting layer. A config may declare a drafting layer although the checkpoint has none of its
// tensors, for example if another tool saved the checkpoint; the model then has no drafting layer. If only some of its
// tensors exist, Finish returns an error that names the missing ones.
func (m *Model) loadNextN(l *nn.Loader) {
	c, p := m.config, draftPrefix(m.config)
	if c.NextN == 0 || !l.HasPrefix(p) {
		return
	}
	n := &nextN{
		layer:   loadLayer(c, l, c.Layers),
		enorm:   l.Vector(p+"enorm.weight", c.Hidden),
		hnorm:   l.Vector(p+"hnorm.weight", c.Hidden),
		project: l.Matrix(p+"eh_proj.weight", c.Hidden, 2*c.Hidden),
		final:   l.Vector(p+"shared_head.norm.weight", c.Hidden),
		embed:   m.embed,
		head:    m.head,
	}
	if name := p + "embed_tokens.weight"; l.Has(name) {
		n.embed = l.Table(name, c.Vocab, c.Hidden)
	}
	if name := p + "shared_head.head.weight"; l.Has(name) {
		n.head = l.MatrixRows(name, c.Vocab, c.Hidden)
	}
	m.next = n
}

// DraftHead returns nil if the checkpoint has a drafting layer.
func (m *Model) DraftHead() error {
	if m.next != nil {
		return nil
	}
	p := draftPrefix(m.config)
	names := []string{"enorm.weight", "hnorm.weight", "eh_proj.weight", "shared_head.norm.weight", "self_attn.*",
		"mlp.*"}
	for i := range names {
		names[i] = p + names[i]
	}
	return plan.ErrDraftHeadMissing("this checkpoint", m.config.Layers, strings.Join(names, ", "))
}

// drafts reports whether a configuration uses the drafting layer.
func (m *Model) drafts(cfg *plan.Config) bool { return m.next != nil && cfg.N > 1 }

// draft holds the tensors of a pass of the drafting layer.
type draft struct {
	pass
	rows kernel.Tensor // i32 [T, 1]: for each row, the row of the hidden states that it reads
	e, g kernel.Tensor // [T, hidden]: embeddings of the tokens, hidden states
	pair kernel.Tensor // [T, 2*hidden]: e and g, normalised and joined
	u    kernel.Tensor // [T, hidden]: residual rows of the layer; stored for plan.PassPick if no logits are computed
	m    kernel.Tensor // [T, hidden]: outputs of the layer, which the next pass of a chain reads
}

func (w *workspace) arrangeDraft(p *plan.Plan, cfg *plan.Config, a *kernel.Arena) (model.Pass, error) {
	m := w.m
	if err := m.DraftHead(); err != nil {
		return nil, err
	}
	n, act, h := m.next, m.Dev.Activation(), m.config.Hidden
	d := &draft{}
	u := w.next.mem.Slice(0, p.Rows)
	if p.Logits > 0 {
		u = a.Take(act, p.Rows, h)
	}
	if err := d.arrange(w, p, cfg, a, []layer{n.layer}); err != nil {
		return nil, err
	}
	d.rows, d.u, d.m = d.in.Array(plan.HiddenRows), u, w.next.mem.Slice(0, p.Rows)
	// The inputs of the layer use the same memory as later operations of the pass: they are computed first.
	a.Reset(d.attn.Kept)
	d.e, d.g, d.pair = a.Take(act, p.Rows, h), a.Take(act, p.Rows, h), a.Take(act, p.Rows, 2*h)
	return d, nil
}

// source returns the hidden states that the pass reads: those of the target, or for plan.PassChain and plan.PassPick
// those of the drafting layer.
func (d *draft) source() *residual {
	if d.plan.Pass == plan.PassDraft {
		return &d.work.hidden
	}
	return &d.work.next
}

func (d *draft) Prepare(in *model.Input, words []int32) error {
	block := attn.NewBlock(d.plan, words)
	cache := d.pass.m.next.cache
	if !cache.Main.Mem.Given() {
		return fmt.Errorf("dsa: draft: the drafting layer has no cache; allocate with a configuration that " +
			"verifies more than one row")
	}
	if err := d.prepare(in, block, cache); err != nil {
		return fmt.Errorf("dsa: draft: %w", err)
	}
	to, from := block.Array(plan.HiddenRows), d.source().rows
	err := in.Rows(func(r attn.Row) (err error) {
		to[r.Index], err = in.HiddenRow(r.Request, r.Token, from)
		return err
	})
	if err != nil {
		return fmt.Errorf("dsa: %w", err)
	}
	if d.plan.Pass != plan.PassPick { // rows of plan.PassPick may be read by several passes
		d.work.next.rows = 0
	}
	return nil
}

// Program returns the operations of the layer. If no logits are requested, it only stores rows and indexer keys.
func (d *draft) Program() (kernel.Program, error) { return d.made.Program(d.pass.m.allocated, d.build) }

func (d *draft) build() (kernel.Program, error) {
	m := d.pass.m
	n, eps, h := m.next, m.config.RMSEps, m.config.Hidden
	d.list.At("drafting layer", -1)
	from := d.source().mem
	if d.plan.Pass == plan.PassPick {
		d.list.Add(kernel.TakeArgs{Out: d.u, X: from, Rows: d.rows})
	} else {
		d.list.Add(kernel.TakeArgs{Out: d.g, X: from, Rows: d.rows})
		if d.plan.Pass == plan.PassDraft { // hidden states of a chain are already normalised
			d.list.Add(kernel.NormArgs{Out: d.g, X: d.g, Weight: m.norm, Eps: eps})
		}
		d.embed(d.e, n.embed)
		d.list.Add(kernel.NormArgs{Out: d.pair.Columns(0, h), X: d.e, Weight: n.enorm, Eps: eps})
		d.list.Add(kernel.NormArgs{Out: d.pair.Columns(h, 2*h), X: d.g, Weight: n.hnorm, Eps: eps})
		d.list.Add(kernel.MultiplyArgs{Out: d.u, X: d.pair, W: n.project})
	}
	d.attn.Begin()
	if d.plan.Logits == 0 {
		d.list.Add(kernel.NormArgs{Out: d.x, X: d.u, Weight: n.layer.inputNorm, Eps: eps})
		d.attn.Store(m.config.Layers, &n.layer.attn, n.cache, d.x)
		return d.list.Compile()
	}
	d.layer(m.config.Layers, &n.layer, n.cache, d.u)
	d.list.At("head of the drafting layer", -1)
	d.list.Add(kernel.NormArgs{Out: d.m, X: d.u, Weight: n.final, Eps: eps})
	d.head.Logits(d.list, d.head.Pick(d.list, d.m), n.head)
	return d.list.Compile()
}

// Ended makes the outputs of this pass, or the rows that it has stored, valid as inputs of later drafting passes,
// unless the pass failed.
func (d *draft) Ended(err error) {
	if err == nil {
		d.work.next.rows = d.plan.Rows
	}
}
