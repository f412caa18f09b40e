package dsa

import (
	"fmt"
	"strings"

	"sparrow/attn"
	"sparrow/kernel"
	"sparrow/model"
	"sparrow/model/config"
	"sparrow/model/nn"
	"sparrow/plan"
)

// nextN is the drafting layer (v32 spec, 3). With x the tokens, g the target's final hidden states after its last norm:
//
//	u_t = eh_proj · [enorm(embed[x_{t+1}]) ; hnorm(g_t)]
//	z_t = layer(u_t) at position t
//	m_t = norm(z_t)
//
// and head · m_t are the logits of x_{t+2}. A chain goes on with m_t in place of g_{t+1}.
type nextN struct {
	layer               layer
	embed, head         kernel.Matrix // the checkpoint's own, or the target's
	enorm, hnorm, final kernel.Tensor
	project             kernel.Matrix // [hidden, 2*hidden]
	cache               attn.Cache
	buf                 draftBuffers
}

type draftBuffers struct {
	e, pair, u, x, out, ids kernel.Scratch
	hidden                  *nn.Picker
	head                    *nn.Head
	last                    kernel.Tensor // m of every row of the pass before
	host                    []int32
}

// draftPrefix is how the tensors of the drafting layer begin.
func draftPrefix(c *config.DSA) string { return fmt.Sprintf("model.layers.%d.", c.Layers) }

// loadNextN reads the drafting layer. A checkpoint that promises one in its config and holds none of its tensors has no drafting layer, as
// those that other tools saved again; one with some of them is broken, which Finish tells.
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
		n.head = l.Matrix(name, c.Vocab, c.Hidden)
	}
	s := kernel.NewScratch(m.dev)
	n.buf = draftBuffers{e: s, pair: s, u: s, x: s, out: s, ids: s, hidden: nn.NewPicker(m.dev), head: nn.NewHead(m.dev)}
	m.next = n
}

// DraftHead is nil when the checkpoint holds a drafting layer.
func (m *Model) DraftHead() error {
	if m.next != nil {
		return nil
	}
	p := draftPrefix(m.config)
	names := []string{"enorm.weight", "hnorm.weight", "eh_proj.weight", "shared_head.norm.weight", "self_attn.*", "mlp.*"}
	for i := range names {
		names[i] = p + names[i]
	}
	return plan.ErrDraftHeadMissing("this checkpoint", m.config.Layers, strings.Join(names, ", "))
}

// drafts reports whether a configuration uses the drafting layer.
func (m *Model) drafts(cfg *plan.Config) bool { return m.next != nil && cfg.N > 1 }

// Draft runs the drafting layer over rows whose hidden states the pass before has computed.
func (m *Model) Draft(in model.DraftInput) (kernel.Tensor, error) {
	if err := m.DraftHead(); err != nil {
		return kernel.Tensor{}, err
	}
	n := m.next
	if !n.cache.Main.Mem.Given() {
		return kernel.Tensor{}, fmt.Errorf("dsa: draft: the drafting layer has no cache; allocate with a configuration that verifies more than one row")
	}
	rows, err := m.attn.Begin(in.Step)
	if err != nil {
		return kernel.Tensor{}, err
	}
	m.attn.Observe = nil // observers are told of the model's own layers
	defer m.Observe(m.observe)
	u, err := m.draftRows(&in, rows)
	if err != nil {
		return kernel.Tensor{}, err
	}
	x, err := n.buf.x.Take(m.dev.Activation(), u.Rows, m.config.Hidden)
	if err != nil {
		return kernel.Tensor{}, err
	}
	n.buf.last = kernel.Tensor{}
	if len(in.Logits) == 0 {
		if err := m.dev.Norm(kernel.NormArgs{Out: x, X: u, Weight: n.layer.inputNorm, Eps: m.config.RMSEps}); err != nil {
			return kernel.Tensor{}, err
		}
		return kernel.Tensor{}, m.attn.Store(m.config.Layers, &n.layer.attn, n.cache, x)
	}
	if err := m.run(m.config.Layers, &n.layer, n.cache, u, x); err != nil {
		return kernel.Tensor{}, err
	}
	out, err := n.buf.out.Take(m.dev.Activation(), u.Rows, m.config.Hidden)
	if err != nil {
		return kernel.Tensor{}, err
	}
	n.buf.last = out
	if err := m.dev.Norm(kernel.NormArgs{Out: out, X: u, Weight: n.final, Eps: m.config.RMSEps}); err != nil {
		return kernel.Tensor{}, err
	}
	return m.draftLogits(&in, rows, out)
}

// draftRows makes the inputs u of every row, in step order.
func (m *Model) draftRows(in *model.DraftInput, rows attn.Rows) (kernel.Tensor, error) {
	n, t, h := m.next, len(rows.Request), m.config.Hidden
	g, err := m.hiddenRows(in, rows)
	if err != nil {
		return kernel.Tensor{}, err
	}
	ids, err := m.tokenIDs(&n.buf.ids, in.Tokens, rows)
	if err != nil {
		return kernel.Tensor{}, err
	}
	e, err := n.buf.e.Take(m.dev.Activation(), t, h)
	if err != nil {
		return kernel.Tensor{}, err
	}
	pair, err := n.buf.pair.Take(m.dev.Activation(), t, 2*h)
	if err != nil {
		return kernel.Tensor{}, err
	}
	u, err := n.buf.u.Take(m.dev.Activation(), t, h)
	if err != nil {
		return kernel.Tensor{}, err
	}
	if err := m.dev.Embed(kernel.EmbedArgs{Out: e, Table: n.embed, IDs: ids}); err != nil {
		return kernel.Tensor{}, err
	}
	if err := m.dev.Norm(kernel.NormArgs{Out: pair.Columns(0, h), X: e, Weight: n.enorm, Eps: m.config.RMSEps}); err != nil {
		return kernel.Tensor{}, err
	}
	if err := m.dev.Norm(kernel.NormArgs{Out: pair.Columns(h, 2*h), X: g, Weight: n.hnorm, Eps: m.config.RMSEps}); err != nil {
		return kernel.Tensor{}, err
	}
	return u, m.dev.Multiply(kernel.MultiplyArgs{Out: u, X: pair, W: n.project})
}

// hiddenRows copies the hidden states that the rows continue: of the target, which are normalised here, or of the pass before.
func (m *Model) hiddenRows(in *model.DraftInput, rows attn.Rows) (kernel.Tensor, error) {
	n := m.next
	from := m.buf.last
	if in.Chained {
		from = n.buf.last
	}
	list := n.buf.host[:0]
	for i, r := range rows.Request {
		t := int(rows.Token[i])
		if t >= len(in.Hidden[r]) {
			return kernel.Tensor{}, fmt.Errorf("dsa: draft: request %d has %d hidden states, the plan asks for number %d", r, len(in.Hidden[r]), t)
		}
		row := in.Hidden[r][t]
		if row < 0 || int(row) >= from.Rows {
			return kernel.Tensor{}, fmt.Errorf("dsa: draft: hidden state %d of the pass before, which had %d rows", row, from.Rows)
		}
		list = append(list, row)
	}
	n.buf.host = list
	g, err := n.buf.hidden.Pick(m.dev, from, list)
	if err != nil || in.Chained {
		return g, err
	}
	return g, m.dev.Norm(kernel.NormArgs{Out: g, X: g, Weight: m.norm, Eps: m.config.RMSEps})
}

// draftLogits picks rows of m and multiplies them by the head.
func (m *Model) draftLogits(in *model.DraftInput, rows attn.Rows, out kernel.Tensor) (kernel.Tensor, error) {
	n := m.next
	list, err := in.Picked(n.buf.host[:0], rows)
	if err != nil {
		return kernel.Tensor{}, err
	}
	n.buf.host = list
	picked, err := n.buf.head.Pick(m.dev, out, list)
	if err != nil {
		return kernel.Tensor{}, err
	}
	return n.buf.head.Logits(m.dev, picked, n.head)
}
