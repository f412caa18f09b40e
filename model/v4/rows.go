package v4

import (
	"sparrow/attn"
	"sparrow/kernel"
	"sparrow/model"
)

// embedRows starts every stream of a row with the embedding of its token.
func (m *Model) embedRows(rows int) (kernel.Tensor, error) {
	n, hidden := m.config.Hyper.Streams, m.config.Hidden
	x, err := m.buf.streams.Take(m.dev.Activation(), rows, n*hidden)
	if err != nil {
		return x, err
	}
	for i := range n {
		err := m.dev.Embed(kernel.EmbedArgs{Out: x.Columns(i*hidden, (i+1)*hidden), Table: m.embed, IDs: m.step.tokens})
		if err != nil {
			return x, err
		}
	}
	return x, nil
}

// pick collapses the streams of the wanted rows, normalises them and multiplies by the head.
func (m *Model) pick(in *model.Input, rows attn.Rows, streams kernel.Tensor) (kernel.Tensor, error) {
	if len(in.Logits) == 0 {
		return kernel.Tensor{}, nil
	}
	list, err := in.Picked(m.buf.host[:0], rows)
	if err != nil {
		return kernel.Tensor{}, err
	}
	m.buf.host = list
	picked, err := m.buf.head.Pick(m.dev, streams, list)
	if err != nil {
		return kernel.Tensor{}, err
	}
	h, err := m.collapse(&m.last, picked)
	if err != nil {
		return kernel.Tensor{}, err
	}
	if err := m.dev.Norm(kernel.NormArgs{Out: h, X: h, Weight: m.norm, Eps: m.config.RMSEps}); err != nil {
		return kernel.Tensor{}, err
	}
	return m.buf.head.Logits(m.dev, h, m.head)
}

// collapse makes one row of a row's streams.
func (m *Model) collapse(s *site, streams kernel.Tensor) (kernel.Tensor, error) {
	mix, err := m.buf.mix.Take(kernel.F32, streams.Rows, m.config.Hyper.Streams)
	if err != nil {
		return kernel.Tensor{}, err
	}
	h, err := m.buf.collapsed.Take(m.dev.Activation(), streams.Rows, m.config.Hidden)
	if err != nil {
		return kernel.Tensor{}, err
	}
	if err := m.dev.Multiply(kernel.MultiplyArgs{Out: mix, X: streams, W: s.fn}); err != nil {
		return kernel.Tensor{}, err
	}
	return h, m.dev.HyperHead(kernel.HyperHeadArgs{Out: h, X: streams, Mix: mix, Base: s.base, Scale: s.scale, Streams: m.config.Hyper.Streams,
		NormEps: m.config.RMSEps, Eps: m.config.Hyper.Eps})
}
