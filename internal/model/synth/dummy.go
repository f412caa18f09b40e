package synth

import (
	"fmt"
	"hash/fnv"

	"sparrow/internal/model/family"
	"sparrow/internal/num"
	"sparrow/weight"
)

// bellPeak is the largest random value in standard deviations: the maximum of the sum of four bytes.
const bellPeak = 3.46

// Dummy returns the checkpoint without files: its tensors have shapes and distributions, and a device generates the
// values when they are loaded. The values differ from those of Write but have the same distributions. Packed values of
// four bits, their scales and blocks repeat a pattern of 8 MiB, in each tensor from a different offset. So they are
// generated as fast as memory is copied.
func (c *Checkpoint) Dummy(name string) (*family.Source, error) {
	list := make([]weight.Tensor, 0, 2*len(c.tensors)) // tensors with their scales
	add := func(name string, d weight.DType, shape []int, seed uint64, mean, spread float64) {
		list = append(list, weight.Tensor{Name: name, DType: d, Shape: shape,
			Drawn: &weight.Distribution{Seed: seed, Mean: float32(mean), Spread: float32(spread)}})
	}
	for _, t := range c.tensors {
		h := fnv.New64a()
		h.Write([]byte(t.like))
		seed := c.options.Seed ^ h.Sum64()
		// All blocks have the same scale, chosen so that the largest value is at most the largest code. In real
		// checkpoints, scales of blocks with the same distribution are similar.
		scale := func(largest float64) float64 { return float64(num.CeilPow2(float32(bellPeak * t.spread / largest))) }
		switch t.store {
		case blockFP8, blockFP8E8:
			s, kind := scale(num.MaxE4M3), weight.F32
			if t.store == blockFP8E8 {
				kind = weight.F8E8M0
			}
			add(t.name, t.dtype, t.shape, seed, 0, t.spread/s)
			add(t.scale, kind, t.scaleShape(), seed, s, 0)
		case groupFP4:
			s := scale(num.MaxE2M1)
			add(t.name, t.dtype, []int{t.shape[0], t.shape[1] / 2}, seed, 0, t.spread/s)
			add(t.scale, weight.F8E8M0, []int{t.shape[0], t.shape[1] / fp4Group}, seed, s, 0)
		case rowFP8:
			s := scale(num.MaxE4M3)
			add(t.name, t.dtype, t.shape, seed, 0, t.spread/s)
			add(t.scale, weight.F8E8M0, []int{t.shape[0], t.shape[1] / fp4Group}, seed, s, 0)
		case released:
			list = appendReleased(list, t)
		case groupInt4:
			list = append(list, int4Drawn(t, seed)...)
		case plainValues, expertTable, tokenMap, expertBlocks:
			add(t.name, t.dtype, t.shape, seed, t.mean, t.spread)
		}
	}
	w, err := weight.FromShapes(name, list)
	if err != nil {
		return nil, fmt.Errorf("synth: %w", err)
	}
	return family.New(name, c.config, w), nil
}
