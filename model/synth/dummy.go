package synth

import (
	"fmt"
	"hash/fnv"

	"sparrow/internal/num"
	"sparrow/model/config"
	"sparrow/model/family"
	"sparrow/weight"
)

// bellPeak is the largest drawn value in standard deviations: the sum of four bytes ends there.
const bellPeak = 3.46

// Dummy is the checkpoint without files: its tensors have shapes and distributions, and whoever loads them draws the
// values, a device in its own memory. Values differ from those that Write writes and have the same distributions.
func (c *Checkpoint) Dummy(name string) (*family.Source, error) {
	if _, ok := c.config.(*config.DSA); !ok {
		return nil, fmt.Errorf("synth: %s: %w: %s cannot be drawn, only the families with DeepSeek sparse attention "+
			"(V3.2, GLM-5); write a checkpoint instead", name, ErrOptions, c.Config().Family)
	}
	var list []weight.Tensor
	add := func(name string, d weight.DType, shape []int, seed uint64, mean, spread float64) {
		list = append(list, weight.Tensor{Name: name, DType: d, Shape: shape,
			Drawn: &weight.Distribution{Seed: seed, Mean: float32(mean), Spread: float32(spread)}})
	}
	for _, t := range c.tensors {
		h := fnv.New64a()
		h.Write([]byte(t.like))
		seed := c.options.Seed ^ h.Sum64()
		if t.store != blockFP8 {
			add(t.name, t.dtype, t.shape, seed, t.mean, t.spread)
			continue
		}
		// One scale for all blocks, of which the largest value is the largest code or less: what blocks of one
		// distribution have when they are quantised.
		scale := float64(num.CeilPow2(float32(bellPeak * t.spread / num.MaxE4M3)))
		add(t.name, t.dtype, t.shape, seed, 0, t.spread/scale)
		add(t.scale, weight.F32, scaleShape(t.shape), seed, scale, 0)
	}
	w, err := weight.FromShapes(name, list)
	if err != nil {
		return nil, fmt.Errorf("synth: %w", err)
	}
	return family.New(name, c.config, w), nil
}
