package model

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"sparrow/kernel"
	"sparrow/layout"
)

// filled is a model whose cache pools are accessible, for writing to them.
type filled interface{ Pools() [][]kernel.Pool }

// distinct is the number of different pages of rows in a pool; the other pages are copies at other addresses. Attention
// time depends on the addresses of rows, not on their values.
const distinct = 32

// fill writes random rows and keys to every page of the cache. All keys differ, because equal scores would change the
// time of selection. Layers have the same pages of keys in different orders.
func fill(ctx context.Context, dev kernel.Memory, layers [][]kernel.Pool, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 2))
	var keys [][]byte
	for i, pools := range layers {
		for _, p := range pools {
			if err := ctx.Err(); err != nil {
				return err
			}
			if _, err := layout.IndexOf(p.Layout); err != nil {
				if err := fillRows(dev, p, rng); err != nil {
					return fmt.Errorf("bench: filling layer %d: %w", i, err)
				}
				continue
			}
			if keys == nil {
				var err error
				if keys, err = indexPages(ctx, p, rng); err != nil {
					return err
				}
			}
			for page := range keys {
				if err := dev.Write(p.Mem.Slice(page, page+1), keys[(page+i)%len(keys)]); err != nil {
					return fmt.Errorf("bench: filling keys of layer %d: %w", i, err)
				}
			}
		}
	}
	return nil
}

// fillRows writes random latent rows or V4 entries to a pool.
func fillRows(dev kernel.Memory, p kernel.Pool, rng *rand.Rand) error {
	encode, err := encoder(p)
	if err != nil {
		return err
	}
	pages := make([][]byte, min(distinct, p.Pages()))
	for i := range pages {
		pages[i] = make([]byte, p.Mem.Cols)
		for slot := range p.PageTokens {
			encode(pages[i], slot, rng)
		}
	}
	for i := range p.Pages() {
		if err := dev.Write(p.Mem.Slice(i, i+1), pages[i%len(pages)]); err != nil {
			return err
		}
	}
	return nil
}

// encoder returns a function that writes one random row in a pool's layout.
func encoder(p kernel.Pool) (func(page []byte, slot int, rng *rand.Rand), error) {
	if l, err := layout.MainOf(p.Layout); err == nil {
		row := make([]float32, layout.RowDim)
		return func(page []byte, slot int, rng *rand.Rand) {
			uniform(row, rng)
			l.Encode(page, slot, row)
		}, nil
	}
	l, err := layout.V4Of(p.Layout)
	if err != nil {
		return nil, err
	}
	entry := make([]float32, layout.V4Dim)
	return func(page []byte, slot int, rng *rand.Rand) {
		uniform(entry, rng)
		l.Encode(page, p.PageTokens, slot, entry)
	}, nil
}

// indexPages generates one page of keys for every page of a pool.
func indexPages(ctx context.Context, p kernel.Pool, rng *rand.Rand) ([][]byte, error) {
	l, err := layout.IndexOf(p.Layout)
	if err != nil {
		return nil, err
	}
	pages := make([][]byte, p.Pages())
	key := make([]float32, layout.IndexDim)
	for i := range pages {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		pages[i] = make([]byte, l.PageBytes(p.PageTokens))
		for slot := range p.PageTokens {
			uniform(key, rng)
			l.Encode(pages[i], p.PageTokens, slot, key)
		}
	}
	return pages, nil
}

// uniform fills v with uniformly distributed values of mean 0 and variance 1. Each random 64-bit word gives four
// values.
func uniform(v []float32, rng *rand.Rand) {
	scale := float32(math.Sqrt(12)) / 65536
	for i := 0; i < len(v); i += 4 {
		bits := rng.Uint64()
		for j := i; j < min(i+4, len(v)); j++ {
			v[j] = (float32(bits&0xFFFF) - 32767.5) * scale
			bits >>= 16
		}
	}
}
