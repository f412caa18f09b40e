package model

import (
	"fmt"
	"math"
	"math/rand/v2"

	"sparrow/attn"
	"sparrow/kernel"
	"sparrow/layout"
)

// filled is a model whose cache can be written from outside.
type filled interface{ Caches() []attn.Cache }

// distinct is how many different pages of latent rows the cache is made of; the others are copies elsewhere in memory. What attention costs
// depends on where rows lie, not on what they hold.
const distinct = 32

// fill writes random rows and keys to every page of the cache. Keys all differ, because equal scores would change what selection costs; layers
// hold the same keys in another order of pages.
func fill(dev kernel.Memory, caches []attn.Cache, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 2))
	var keys [][]byte
	for i, c := range caches {
		if err := fillMain(dev, c.Main, rng); err != nil {
			return fmt.Errorf("bench: filling layer %d: %w", i, err)
		}
		if !c.Index.Mem.Given() {
			continue
		}
		if keys == nil {
			var err error
			if keys, err = indexPages(c.Index, rng); err != nil {
				return err
			}
		}
		for p := range keys {
			if err := dev.Write(c.Index.Mem.Slice(p, p+1), keys[(p+i)%len(keys)]); err != nil {
				return fmt.Errorf("bench: filling keys of layer %d: %w", i, err)
			}
		}
	}
	return nil
}

func fillMain(dev kernel.Memory, p kernel.Pool, rng *rand.Rand) error {
	l, err := layout.MainOf(p.Layout)
	if err != nil {
		return err
	}
	pages := make([][]byte, min(distinct, p.Pages()))
	row := make([]float32, layout.RowDim)
	for i := range pages {
		pages[i] = make([]byte, l.PageBytes(p.PageTokens))
		for slot := range p.PageTokens {
			uniform(row, rng)
			l.Encode(pages[i], slot, row)
		}
	}
	for i := range p.Pages() {
		if err := dev.Write(p.Mem.Slice(i, i+1), pages[i%len(pages)]); err != nil {
			return err
		}
	}
	return nil
}

// indexPages makes one page of keys for every page of a pool.
func indexPages(p kernel.Pool, rng *rand.Rand) ([][]byte, error) {
	l, err := layout.IndexOf(p.Layout)
	if err != nil {
		return nil, err
	}
	pages := make([][]byte, p.Pages())
	key := make([]float32, layout.IndexDim)
	for i := range pages {
		pages[i] = make([]byte, l.PageBytes(p.PageTokens))
		for slot := range p.PageTokens {
			uniform(key, rng)
			l.Encode(pages[i], p.PageTokens, slot, key)
		}
	}
	return pages, nil
}

// uniform draws numbers of mean 0 and variance 1, which is what norms leave: four from each random word.
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
