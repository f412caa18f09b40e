package dsa

import (
	"fmt"

	"sparrow/attn"
	"sparrow/kernel"
	"sparrow/model"
)

// embedRows looks up the token of every row, in step order.
func (m *Model) embedRows(in *model.Input, rows attn.Rows) (kernel.Tensor, error) {
	ids, err := m.tokenIDs(&m.buf.ids, in.Tokens, rows)
	if err != nil {
		return kernel.Tensor{}, err
	}
	h, err := m.buf.h.Take(m.dev.Activation(), ids.Rows, m.config.Hidden)
	if err != nil {
		return kernel.Tensor{}, err
	}
	return h, m.dev.Embed(kernel.EmbedArgs{Out: h, Table: m.embed, IDs: ids})
}

// tokenIDs writes the token that belongs to every row, i32 [T, 1].
func (m *Model) tokenIDs(mem *kernel.Scratch, tokens [][]int32, rows attn.Rows) (kernel.Tensor, error) {
	n := len(rows.Request)
	ids, err := mem.Take(kernel.I32, n, 1)
	if err != nil {
		return kernel.Tensor{}, err
	}
	if m.buf.host = m.buf.host[:0]; cap(m.buf.host) < n {
		m.buf.host = make([]int32, 0, n)
	}
	for i, r := range rows.Request {
		t := int(rows.Token[i])
		if t >= len(tokens[r]) {
			return kernel.Tensor{}, fmt.Errorf("dsa: forward: request %d has %d new tokens, the plan asks for number %d", r, len(tokens[r]), t)
		}
		m.buf.host = append(m.buf.host, tokens[r][t])
	}
	return ids, kernel.WriteI32(m.dev, ids, m.buf.host)
}

// logits picks rows, normalises them and multiplies by the head.
func (m *Model) logits(in *model.Input, rows attn.Rows, h kernel.Tensor) (kernel.Tensor, error) {
	if len(in.Logits) == 0 {
		return kernel.Tensor{}, nil
	}
	list, err := in.Picked(m.buf.host[:0], rows)
	if err != nil {
		return kernel.Tensor{}, err
	}
	m.buf.host = list
	picked, err := m.buf.head.Pick(m.dev, h, list)
	if err != nil {
		return kernel.Tensor{}, err
	}
	if err := m.dev.Norm(kernel.NormArgs{Out: picked, X: picked, Weight: m.norm, Eps: m.config.RMSEps}); err != nil {
		return kernel.Tensor{}, err
	}
	return m.buf.head.Logits(m.dev, picked, m.head)
}
