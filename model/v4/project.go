package v4

import (
	"sparrow/attn"
	"sparrow/kernel"
)

// query is what attention reads and writes, all rows of the step.
type query struct {
	q      kernel.Tensor // [T, heads*512], rotated
	qr     kernel.Tensor // [T, q_lora]
	x      kernel.Tensor // [T, hidden]
	angles kernel.Tensor // f32 [T, 64]
	main   rawEntries    // of the layer's compressor; not given where it has none
	key    rawEntries    // of the indexer's
	// Raw indexer queries and head weights, where they are computed with the others.
	index attn.Queries
	out   kernel.Tensor // [T, heads*512]
}

// rawEntries are the rows that compressed entries are made of: f32 [T, halves*dim] each.
type rawEntries struct{ values, gates kernel.Tensor }

// projection is what project reads.
type projection struct {
	window    kernel.Pool   // takes the step's window entries
	x, angles kernel.Tensor // normalised rows, and their angles
	slots     kernel.Tensor // of their entries
	scores    bool          // some row's keys are scored
}

// project computes queries, their latents and what entries and indexer keys are made of, and stores the step's window entries. Products of the same
// rows go together.
func (m *Model) project(a *attention, p projection) (in query, err error) {
	cfg, act, x := m.config.Attention, m.dev.Activation(), p.x
	in.x, in.angles = x, p.angles
	if in.qr, err = m.buf.qa.Take(act, x.Rows, cfg.QLora); err != nil {
		return
	}
	if in.q, err = m.buf.q.Take(act, x.Rows, cfg.Heads*cfg.Dim); err != nil {
		return
	}
	kv, err := m.buf.kv.Take(act, x.Rows, cfg.Dim)
	if err != nil {
		return
	}
	m.buf.to = append(m.buf.to[:0], kernel.Projection{Out: in.qr, W: a.qa}, kernel.Projection{Out: kv, W: a.kv})
	if a.compress != nil {
		if in.main, err = m.rawEntries(&m.buf.main, a.compress, x.Rows); err != nil {
			return
		}
	}
	together := a.index != nil && p.scores && x.Rows <= attn.TogetherRows
	if a.index != nil {
		if in.key, err = m.rawEntries(&m.buf.key, &a.index.compress, x.Rows); err != nil {
			return
		}
	}
	if together {
		if in.index, err = m.index.Take(x.Rows); err != nil {
			return
		}
		m.buf.to = append(m.buf.to, kernel.Projection{Out: in.index.Weights, W: a.index.weights})
	}
	if err = m.dev.Project(kernel.ProjectArgs{X: x, To: m.buf.to}); err != nil {
		return
	}
	err = m.dev.StoreEntries(kernel.EntryStoreArgs{Rows: kv, Norm: a.kvNorm, Eps: m.config.RMSEps, Angles: p.angles, Slots: p.slots, Pool: p.window})
	if err != nil {
		return
	}
	if err = m.dev.Norm(kernel.NormArgs{Out: in.qr, X: in.qr, Weight: a.qNorm, Eps: m.config.RMSEps}); err != nil {
		return
	}
	m.buf.to = append(m.buf.to[:0], kernel.Projection{Out: in.q, W: a.qb})
	if together {
		m.buf.to = append(m.buf.to, kernel.Projection{Out: in.index.Q, W: a.index.q})
	}
	if err = m.dev.Project(kernel.ProjectArgs{X: in.qr, To: m.buf.to}); err != nil {
		return
	}
	if err = m.dev.HeadNorm(kernel.HeadNormArgs{X: in.q, Heads: cfg.Heads, Eps: m.config.RMSEps}); err != nil {
		return
	}
	err = m.rotate(in.q, p.angles, false)
	return
}

// rawBuffers is the memory of a compressor's raw rows.
type rawBuffers struct{ values, gates kernel.Scratch }

// rawEntries adds the products of a compressor.
func (m *Model) rawEntries(b *rawBuffers, c *compressor, rows int) (r rawEntries, err error) {
	if r.values, err = b.values.Take(kernel.F32, rows, c.width()); err != nil {
		return
	}
	if r.gates, err = b.gates.Take(kernel.F32, rows, c.width()); err != nil {
		return
	}
	m.buf.to = append(m.buf.to, kernel.Projection{Out: r.values, W: c.values}, kernel.Projection{Out: r.gates, W: c.gates})
	return
}

// scores reports whether some launch of the step scores keys, in layers with an indexer.
func (m *Model) scores() bool {
	for i := range m.step.segments {
		s := &m.step.segments[i]
		for j := range s.launches {
			if m.index.Scores(s.plan.Indexer.Kind, s.launches[j].longest) {
				return true
			}
		}
	}
	return false
}
