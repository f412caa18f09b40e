package v4

import (
	"fmt"
	"strings"

	"sparrow/internal/attn"
	"sparrow/internal/attn/dual"
	"sparrow/internal/model"
	"sparrow/internal/model/nn"
	"sparrow/kernel"
	"sparrow/plan"
)

// draftHead is the drafting block (v4 spec, 2.7). With X the residual streams of the target after its last layer and
// x the tokens:
//
//	U_t[i] = h_proj · hnorm(X_t[i]) + e_proj · enorm(embed[x_{t+1}])     for every stream i
//	Z_t    = layer(U_t) at position t, attending to a window only
//
// The product of the head and the combined, normalised Z_t is the logits of x_{t+2}. The next pass of a chain uses Z_t
// instead of X_{t+1}.
//
// The layer's cache has a window entry for each row, which depends only on U_t. So only the last rows of a prompt are
// computed, to which later rows attend. Entries are stored in a ring of the sequence's state, not in pages: a sequence
// that continues after cached pages first drafts with a shorter window.
type draftHead struct {
	layer        layer
	eproj, hproj kernel.Matrix // e_proj and h_proj, [hidden, hidden]
	enorm, hnorm kernel.Tensor
	last         nn.Site
	norm         kernel.Tensor

	cache *dual.DraftCache
}

// draftPrefix is the prefix of the drafting block's tensors.
const draftPrefix = "mtp.0."

// loadDrafts loads the drafting block if the checkpoint has it with its official names. Other names are not supported.
func (m *Model) loadDrafts(l *nn.Loader) {
	c := m.config
	switch {
	case c.DSpark != nil:
		m.loadStages(l)
		return
	case c.NextN == 0 || !l.HasPrefix(draftPrefix):
		l.Skip("drafting block; config.json has none",
			func(name string) bool { return strings.HasPrefix(name, "mtp.") })
		return
	}
	at := func(name string) string { return draftPrefix + name }
	m.draft = &draftHead{
		layer: loadLayer(c, l, at, 0, expertNames{layer: c.Layers}),
		eproj: l.Matrix(at("e_proj.weight"), c.Hidden, c.Hidden),
		hproj: l.Matrix(at("h_proj.weight"), c.Hidden, c.Hidden),
		enorm: l.Vector(at("enorm.weight"), c.Hidden),
		hnorm: l.Vector(at("hnorm.weight"), c.Hidden),
		norm:  l.Vector(at("norm.weight"), c.Hidden),
		last:  l.Site(at, "hc_head_", c.Hyper.Streams*c.Hidden, c.Hyper.Streams, 1),
		cache: dual.NewDraftCache(m.Dev),
	}
}

// DraftHead returns nil if the checkpoint has a drafting block, or the stages of a DSpark head.
func (m *Model) DraftHead() error {
	if m.draft != nil || m.spark != nil {
		return nil
	}
	if d := m.config.DSpark; d != nil {
		return plan.ErrDraftHeadMissing("this checkpoint", m.config.Layers, fmt.Sprintf("mtp.0.main_proj, "+
			"mtp.0.main_norm, mtp.{0..%d}.*, mtp.%d.{norm,hc_head_*,markov_head.*,confidence_head.*}", d.Stages-1,
			d.Stages-1))
	}
	return plan.ErrDraftHeadMissing("this checkpoint", m.config.Layers,
		draftPrefix+"{e_proj,h_proj,enorm,hnorm,norm,hc_head_*,attn.*,ffn.*}")
}

// draft holds the tensors of a pass of the drafting block.
type draft struct {
	pass
	attn   *dual.WindowPass
	hidden kernel.Tensor // i32 [R, 1]: for each row, the row of the hidden states that it reads
	places kernel.Tensor // i32 [R, 1]: row of the plan for each computed row
	e, x   kernel.Tensor // [R, hidden]
	from   kernel.Tensor // [R, streams*hidden]: the hidden states
	u      kernel.Tensor // [R, streams*hidden]
	states []*dual.State
}

func (w *workspace) arrangeDraft(p *plan.Plan, cfg *plan.Config, a *kernel.Arena) (model.Pass, error) {
	m := w.m
	if err := m.DraftHead(); err != nil {
		return nil, err
	}
	act, h, width := m.Dev.Activation(), m.config.Hidden, m.config.Hyper.Streams*m.config.Hidden
	d := &draft{}
	rows := p.Input(plan.TokenIDs).Rows
	d.begin(w, p, cfg, a)
	d.u = a.Take(act, rows, width)
	d.sub = nn.TakeSublayer(a, act, rows, m.Config(), m.config.Hyper)
	d.attn = m.attn.ArrangeWindow(p, d.in, a, m.draft.cache)
	d.hidden, d.places = d.in.Array(plan.HiddenRows), d.in.Array(plan.DraftRows)
	a.Reset(d.attn.Kept)
	d.ffn = m.draft.layer.ffn.arrange(a, act, rows, m.config.FFN.TopK)
	a.Reset(d.attn.Kept)
	d.e, d.x, d.from = a.Take(act, rows, h), a.Take(act, rows, h), a.Take(act, rows, width)
	a.Reset(d.attn.Kept)
	d.finish(a)
	return d, nil
}

// source returns the hidden states that the pass reads: those of the target, or in a chain those of the drafting block.
func (d *draft) source() *residual {
	if d.plan.Pass == plan.PassChain {
		return &d.work.drafted
	}
	return &d.work.streams
}

func (d *draft) Prepare(in *model.Input, words []int32) error {
	if !d.m.draft.cache.Given() {
		return fmt.Errorf("v4: draft: the drafting block has no cache; allocate with a configuration that verifies " +
			"more than one row")
	}
	block := attn.NewBlock(d.plan, words)
	d.states = d.states[:0]
	for r := range in.Tokens {
		var given model.State
		if r < len(in.States) {
			given = in.States[r]
		}
		st, err := d.m.KeptOf(given, in, r)
		if err != nil {
			return fmt.Errorf("v4: draft: %w", err)
		}
		d.states = append(d.states, st)
	}
	tokens, hidden, logits := block.Array(plan.TokenIDs), block.Array(plan.HiddenRows), block.Array(plan.LogitRows)
	from, wanted := d.source().rows, 0
	if err := block.FillSampling(&in.Batch); err != nil {
		return err
	}
	err := d.attn.Prepare(&in.Batch, d.states, block, func(r dual.WindowRow) (err error) {
		if r.Token >= len(in.Tokens[r.Request]) {
			return fmt.Errorf("the request has %d tokens, but the plan reads token %d", len(in.Tokens[r.Request]),
				r.Token)
		}
		tokens[r.Index] = in.Tokens[r.Request][r.Token]
		if hidden[r.Index], err = in.HiddenRow(r.Request, r.Token, from); err != nil {
			return err
		}
		switch n := in.Batch.Batch.Requests[r.Request].Logits; {
		case n > 1:
			return fmt.Errorf("logits of %d rows were requested, want one: a draft continues only from the last row "+
				"of a request",
				n)
		case n == 1 && r.Last:
			logits[wanted] = int32(r.Index)
			wanted++
		}
		return attn.CheckToken(tokens[r.Index], d.m.config.Vocab)
	})
	if err != nil {
		d.forget()
		return fmt.Errorf("v4: draft: %w", err)
	}
	d.work.drafted.rows = 0
	return nil
}

// forget marks the entries in the states of the pass's sequences as invalid, after the pass failed.
func (d *draft) forget() {
	for _, st := range d.states {
		if st != nil {
			st.ForgetDrafts()
		}
	}
}

func (d *draft) Program() (kernel.Program, error) { return d.made.Program(d.m.moved(), d.build) }

func (d *draft) build() (kernel.Program, error) {
	m := d.m
	head := m.draft
	l := &head.layer
	d.list.At("drafting block", -1)
	d.inputs()
	d.list.At("attention of the drafting block", -1)
	streams := kernel.HyperPreArgs{X: d.u}
	d.sub.Run(d.list, &l.attnSite, l.attnNorm, streams, func(out, x kernel.Tensor) { d.attn.Attend(l.attn, out, x) })
	d.list.At("feed-forward of the drafting block", -1)
	d.sub.Run(d.list, &l.ffnSite, l.ffnNorm, streams, func(out, x kernel.Tensor) {
		m.feedForward(&l.ffn, &d.ffn, out, x, d.ids, 0, d.choices.ExpertTap(m.config.Layers))
	})
	// The next pass of a chain reads the streams in plan order. Rows that were not computed are undefined and are not
	// read.
	d.list.Add(kernel.PutArgs{Out: d.work.drafted.mem.Slice(0, d.plan.Rows), X: d.u, Rows: d.places})
	if d.plan.Logits > 0 {
		d.logits(d.u, &head.last, head.norm)
	}
	return d.list.Compile()
}

// Ended makes the rows of this pass valid as inputs of the next pass of a chain, unless the pass failed.
func (d *draft) Ended(err error) {
	if err != nil {
		d.forget()
		return
	}
	d.work.drafted.rows = d.plan.Rows
}

// inputs adds the operations that compute the layer's input streams.
func (d *draft) inputs() {
	m, head, h, eps := d.m, d.m.draft, d.m.config.Hidden, d.m.config.RMSEps
	d.list.Add(kernel.TakeArgs{Out: d.from, X: d.source().mem, Rows: d.hidden})
	d.list.Add(kernel.EmbedArgs{Out: d.e, Table: m.embed, IDs: d.ids, Part: m.Ranks.Part(m.config.Vocab)})
	d.list.Add(kernel.AllReduceArgs{X: d.e})
	d.list.Add(kernel.NormArgs{Out: d.e, X: d.e, Weight: head.enorm, Eps: eps})
	for i := range m.config.Hyper.Streams {
		to := d.u.Columns(i*h, (i+1)*h)
		d.list.Add(kernel.MultiplyArgs{Out: to, X: d.e, W: head.eproj})
		d.list.Add(kernel.NormArgs{Out: d.x, X: d.from.Columns(i*h, (i+1)*h), Weight: head.hnorm, Eps: eps})
		d.list.Add(kernel.MultiplyArgs{Out: to, X: d.x, W: head.hproj, Accumulate: true})
	}
}
