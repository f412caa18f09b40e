package v4

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/model"
	"sparrow/model/nn"
	"sparrow/plan"
)

// draftHead is the drafting block (v4 spec, 2.7). With X the residual streams of the target behind its last layer and x the tokens:
//
//	U_t[i] = h_proj · hnorm(X_t[i]) + e_proj · enorm(embed[x_{t+1}])     for every stream i
//	Z_t    = layer(U_t) at position t, attending to a window only
//
// and the head over the collapsed, normalised Z_t gives the logits of x_{t+2}. A chain goes on with Z_t in place of X_{t+1}.
//
// What the layer keeps of a row, its window entry, follows from U_t alone. So of a prompt only the rows that the next ones see are computed, and they
// lie in a ring beside the sequence's state, not in pages: a sequence that begins behind cached pages drafts with a shorter window at first.
type draftHead struct {
	layer        layer
	eproj, hproj kernel.Matrix // e_proj and h_proj, [hidden, hidden]
	enorm, hnorm kernel.Tensor
	last         site
	norm         kernel.Tensor

	pool    kernel.Pool   // a page of draftRing entries for each slot of a state; not given without drafts
	epoch   int           // of the pool: entries of states from another one are gone
	entry   layout.V4     // of the cache it was allocated with
	streams kernel.Tensor // Z of every row of the latest pass, in step order
	rows    draftRows
	buf     draftBuffers
}

// draftRing is how many entries a sequence keeps: a window, and as many more as can be drafted and taken back.
const draftRing = 256

// draftMark is which entries of a sequence's ring are good: those of positions from low to high.
type draftMark struct{ epoch, low, high int }

type draftBuffers struct {
	e, x, u, out, kept            kernel.Scratch
	hidden                        *nn.Picker
	head                          *nn.Head
	slots, lens, window, ids, put kernel.Scratch
	angles, place                 kernel.Scratch
}

// draftPrefix is how the tensors of the drafting block begin.
const draftPrefix = "mtp.0."

// loadDrafts reads the drafting block where the checkpoint has it under its official names. Spellings that carry it otherwise have none to us.
func (m *Model) loadDrafts(l *nn.Loader) {
	c := m.config
	if c.NextN == 0 || !l.HasPrefix(draftPrefix) {
		l.Skip("mtp.")
		return
	}
	at := func(name string) string { return draftPrefix + name }
	s := kernel.NewScratch(m.dev)
	m.draft = &draftHead{
		layer: loadLayer(c, l, at, 0, expertNames{}),
		eproj: l.Matrix(at("e_proj.weight"), c.Hidden, c.Hidden),
		hproj: l.Matrix(at("h_proj.weight"), c.Hidden, c.Hidden),
		enorm: l.Vector(at("enorm.weight"), c.Hidden),
		hnorm: l.Vector(at("hnorm.weight"), c.Hidden),
		norm:  l.Vector(at("norm.weight"), c.Hidden),
		last:  loadSite(c, l, at("hc_head_fn"), at("hc_head_base"), at("hc_head_scale"), c.Hyper.Streams, 1),
		buf: draftBuffers{e: s, x: s, u: s, out: s, kept: s, hidden: nn.NewPicker(m.dev), head: nn.NewHead(m.dev),
			slots: s, lens: s, window: s, ids: s, put: s, angles: s, place: s},
	}
}

// DraftHead is nil when the checkpoint holds a drafting block.
func (m *Model) DraftHead() error {
	if m.draft != nil {
		return nil
	}
	return plan.ErrDraftHeadMissing("this checkpoint", m.config.Layers, draftPrefix+"{e_proj,h_proj,enorm,hnorm,norm,hc_head_*,attn.*,ffn.*}")
}

// allocateDrafts makes room for the rings of every state there is, or gives it back where nothing is drafted.
func (m *Model) allocateDrafts(cfg *plan.Config, entry layout.V4) error {
	d := m.draft
	if d == nil {
		return nil
	}
	d.entry = nil
	if cfg.N > 1 {
		d.entry = entry
	}
	return m.growDrafts(m.states.slots)
}

// growDrafts makes the rings of that many slots. What they held is lost, which costs drafts some of their window and nothing else.
func (m *Model) growDrafts(slots int) error {
	d := m.draft
	if d == nil {
		return nil
	}
	if d.pool.Mem.Given() {
		m.dev.Free(d.pool.Mem.Buf)
		d.pool = kernel.Pool{}
	}
	d.epoch++
	if d.entry == nil || slots == 0 {
		return nil
	}
	var err error
	d.pool, err = model.NewPool(m.dev, d.entry.Kind(), d.entry.PageBytes(draftRing), slots, draftRing)
	return err
}

// Draft runs the drafting block over rows whose hidden states the pass before has computed.
func (m *Model) Draft(in model.DraftInput) (kernel.Tensor, error) {
	if err := m.DraftHead(); err != nil {
		return kernel.Tensor{}, err
	}
	d := m.draft
	if d.entry == nil {
		return kernel.Tensor{}, fmt.Errorf("v4: draft: the drafting block has no cache; allocate with a configuration that verifies more than one row")
	}
	from := m.streams
	if in.Chained {
		from = d.streams
	}
	if err := d.rows.fill(&in, m, from.Rows); err != nil {
		return kernel.Tensor{}, fmt.Errorf("v4: draft: %w", err)
	}
	u, err := m.draftInputs(from)
	if err != nil {
		return kernel.Tensor{}, fmt.Errorf("v4: draft: %w", err)
	}
	l := &d.layer
	if err := m.sublayer(&l.attnSite, l.attnNorm, u, m.draftAttend); err != nil {
		return kernel.Tensor{}, fmt.Errorf("v4: draft: attention: %w", err)
	}
	err = m.sublayer(&l.ffnSite, l.ffnNorm, u, func(out, x kernel.Tensor) error { return m.feedForward(&l.ffn, out, x) })
	if err != nil {
		return kernel.Tensor{}, fmt.Errorf("v4: draft: feed-forward: %w", err)
	}
	if err := m.keepDrafts(in.Plan.Rows, u); err != nil {
		return kernel.Tensor{}, fmt.Errorf("v4: draft: %w", err)
	}
	return m.draftLogits(u)
}

// draftInputs makes the streams that the layer starts with.
func (m *Model) draftInputs(from kernel.Tensor) (kernel.Tensor, error) {
	d, n, h, act := m.draft, m.config.Hyper.Streams, m.config.Hidden, m.dev.Activation()
	t := len(d.rows.position)
	u, err := d.buf.u.Take(act, t, n*h)
	if err != nil {
		return u, err
	}
	e, err := d.buf.e.Take(act, t, h)
	if err != nil {
		return u, err
	}
	x, err := d.buf.x.Take(act, t, h)
	if err != nil {
		return u, err
	}
	ids, err := m.write(&d.buf.ids, d.rows.token, 1)
	if err != nil {
		return u, err
	}
	hidden, err := d.buf.hidden.Pick(m.dev, from, d.rows.hidden)
	if err != nil {
		return u, err
	}
	if err := m.dev.Embed(kernel.EmbedArgs{Out: e, Table: m.embed, IDs: ids}); err != nil {
		return u, err
	}
	if err := m.dev.Norm(kernel.NormArgs{Out: e, X: e, Weight: d.enorm, Eps: m.config.RMSEps}); err != nil {
		return u, err
	}
	for i := range n {
		to := u.Columns(i*h, (i+1)*h)
		if err := m.dev.Multiply(kernel.MultiplyArgs{Out: to, X: e, W: d.eproj}); err != nil {
			return u, err
		}
		if err := m.dev.Norm(kernel.NormArgs{Out: x, X: hidden.Columns(i*h, (i+1)*h), Weight: d.hnorm, Eps: m.config.RMSEps}); err != nil {
			return u, err
		}
		if err := m.dev.Multiply(kernel.MultiplyArgs{Out: to, X: x, W: d.hproj, Accumulate: true}); err != nil {
			return u, err
		}
	}
	return u, nil
}

// draftAttend stores the rows' entries in their rings and attends to them.
func (m *Model) draftAttend(out, x kernel.Tensor) error {
	d, r := m.draft, &m.draft.rows
	slots, err := m.write(&d.buf.slots, r.slot, 1)
	if err != nil {
		return err
	}
	place, err := m.write(&d.buf.place, r.position, 1)
	if err != nil {
		return err
	}
	lens, err := m.write(&d.buf.lens, r.lens, 1)
	if err != nil {
		return err
	}
	window, err := m.write(&d.buf.window, r.window, r.width)
	if err != nil {
		return err
	}
	angles, err := d.buf.angles.Take(kernel.F32, place.Rows, 2*m.freq.main.Cols)
	if err != nil {
		return err
	}
	if err := m.dev.Angles(kernel.AngleArgs{Out: angles, Positions: place, InvFreq: m.freq.main, Scale: 1}); err != nil {
		return err
	}
	a := &d.layer.attn
	in, err := m.project(a, projection{window: d.pool, x: x, angles: angles, slots: slots})
	if err != nil {
		return err
	}
	o, err := d.buf.out.Take(m.dev.Activation(), x.Rows, in.q.Cols)
	if err != nil {
		return err
	}
	err = m.dev.DualAttend(kernel.DualArgs{Out: o, Q: in.q, Sinks: a.sinks, Heads: m.config.Attention.Heads, Scale: m.scale(),
		Window: kernel.Stream{Pool: d.pool, Indices: window, Lens: lens}})
	if err != nil {
		return err
	}
	return m.output(a, out, o, angles)
}

// keepDrafts puts the streams where a chain finds them, in step order. Rows that were not computed hold nothing; no chain goes on from them.
func (m *Model) keepDrafts(rows int, u kernel.Tensor) error {
	d := m.draft
	kept, err := d.buf.kept.Take(u.DType, rows, u.Cols)
	if err != nil {
		return err
	}
	places, err := m.write(&d.buf.put, d.rows.row, 1)
	if err != nil {
		return err
	}
	d.streams = kept
	return m.dev.Put(kernel.PutArgs{Out: kept, X: u, Rows: places})
}

// draftLogits collapses the wanted rows, normalises them and multiplies by the head.
func (m *Model) draftLogits(u kernel.Tensor) (kernel.Tensor, error) {
	d := m.draft
	if len(d.rows.wanted) == 0 {
		return kernel.Tensor{}, nil
	}
	picked, err := d.buf.head.Pick(m.dev, u, d.rows.wanted)
	if err != nil {
		return kernel.Tensor{}, err
	}
	h, err := m.collapse(&d.last, picked)
	if err != nil {
		return kernel.Tensor{}, err
	}
	if err := m.dev.Norm(kernel.NormArgs{Out: h, X: h, Weight: d.norm, Eps: m.config.RMSEps}); err != nil {
		return kernel.Tensor{}, err
	}
	return d.buf.head.Logits(m.dev, h, m.head)
}

// write copies numbers to the device.
func (m *Model) write(s *kernel.Scratch, v []int32, cols int) (kernel.Tensor, error) {
	t, err := s.Take(kernel.I32, len(v)/cols, cols)
	if err != nil {
		return t, err
	}
	return t, kernel.WriteI32(m.dev, t, v)
}
