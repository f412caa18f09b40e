package testkit

import (
	"errors"
	"math"

	"sparrow/kernel"
	"sparrow/layout"
)

// testEntryRefusals calls the operations on entries and streams with positions out of range. Each must return an error
// that names the position and must not read out of bounds.
func testEntryRefusals(p *pair) {
	d := p.dev
	pool := p.entryPool(layout.V4Row584, 2, 3, nil).dev
	keys := p.indexPool(layout.IndexPage132, 2, 3).dev
	row := p.random(1, layout.V4Dim).dev
	at := func(v ...int32) kernel.Tensor { return p.ints(1, len(v), v).dev }
	f := func(rows, cols int) kernel.Tensor { return p.zeros(rows, cols).dev }
	stream := func(slot int32) kernel.Stream {
		return kernel.Stream{Pool: pool, Indices: at(slot, math.MaxInt32), Lens: at(1)}
	}
	dual := func(window, extra int32) error {
		return kernel.Do(d, kernel.DualArgs{Out: p.random(1, layout.V4Dim).dev, Q: row, Window: stream(window),
			Extra: stream(extra), Sinks: f(1, 1), Heads: 1, Scale: 1})
	}
	compress := func(source int32) error {
		return kernel.Do(d, kernel.CompressArgs{Out: p.random(1, 2).dev, Values: f(3, 2), Gates: f(3, 2),
			State: f(4, 4), APE: f(1, 2), Sources: at(source), Ratio: 1})
	}
	hash := func(token, expert int32) error {
		return kernel.Do(d, kernel.HashRouteArgs{IDs: at(0), Weights: f(1, 1), Logits: f(1, 5),
			Table: p.ints(2, 1, []int32{0, expert}).dev, Tokens: at(token), Scale: 1})
	}
	dense := func(start, n int32) error {
		return kernel.Do(d, kernel.DenseArgs{Out: p.random(1, 128).dev, Q: f(1, 128+64), KV: f(3, 128+128),
			Rope: f(3, 64), Start: at(start), Lens: at(n), Scale: 1,
			Dims: kernel.LatentDims{Heads: 1, Nope: 128, Rope: 64, V: 128, Latent: 512}})
	}
	p.must(errors.Join(dense(0, 3), dense(2, 1)))
	p.must(errors.Join(dual(5, -1), compress(2), compress(-5), hash(1, 4))) // the last valid values
	for name, err := range map[string]error{
		"dual: window slot beyond pool": dual(6, 0),
		"dual: extra slot beyond pool":  dual(0, 6),
		"flat: entry beyond workspace": kernel.Do(d, kernel.FlatArgs{Out: p.random(1, layout.V4Dim).dev, Q: row,
			KV: f(2, layout.V4Dim), Indices: at(2), Lens: at(1), Sinks: f(1, 1), Heads: 1, Scale: 1}),
		"dense: more keys than there are":    dense(0, 4),
		"dense: keys end beyond the last":    dense(1, 3),
		"dense: keys begin before the first": dense(-1, 2),
		"compress: row beyond step":          compress(3),
		"compress: row beyond state":         compress(-6),
		"put: row beyond out":                d.Put(kernel.PutArgs{Out: f(2, 3), X: f(1, 3), Rows: at(2)}),
		"unpack: slot beyond pool": kernel.Do(d, kernel.UnpackArgs{Out: f(1, layout.V4Dim), Slots: at(6),
			Pool: pool}),
		"store entries: slot beyond": kernel.Do(d, kernel.EntryStoreArgs{Rows: row, Norm: f(1, layout.V4Dim),
			Angles: f(1, 64), Slots: at(6), Pool: pool}),
		"store keys: slot beyond": kernel.Do(d, kernel.KeyStoreArgs{Keys: p.random(1, 128).dev, Norm: f(1, 128),
			Angles: f(1, 64), Slots: at(6), Pool: keys}),
		"store keys: a pool of entries": kernel.Do(d, kernel.KeyStoreArgs{Keys: p.random(1, 128).dev, Norm: f(1, 128),
			Angles: f(1, 64), Slots: at(0), Pool: pool}),
		"hash: token beyond table":         hash(2, 0),
		"hash: token below zero":           hash(-1, 0),
		"hash: expert that does not exist": hash(1, 5),
	} {
		if !errors.Is(err, kernel.ErrArgument) {
			p.Errorf("%s: got error %v, want one that wraps ErrArgument", name, err)
		}
	}
}
