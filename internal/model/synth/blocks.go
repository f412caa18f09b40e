package synth

import (
	"fmt"
	"strings"

	gguf "sparrow/internal/block"
	"sparrow/weight"
)

// PackExperts sets the types of routed experts to types of GGUF files: one for gate and up, another for down. Only
// random weights without files (Dummy) support this.
func (c *Checkpoint) PackExperts(gateUp, down gguf.Format) error {
	found := false
	for i := range c.tensors {
		t := &c.tensors[i]
		if len(t.shape) != 2 || !strings.Contains(t.name, ".experts.") {
			continue
		}
		f := gateUp
		if strings.HasSuffix(t.name, ".w2.weight") || strings.HasSuffix(t.name, ".down_proj.weight") {
			f = down
		}
		switch {
		case !f.Drawable():
			return fmt.Errorf("synth: %w: experts cannot be of type %v; want a type whose scales are "+
				"float16, such as IQ2_XXS and Q2_K", ErrOptions, f)
		case t.shape[1]%f.Values() != 0:
			return fmt.Errorf("synth: %w: %s has rows of %d values, which are not whole blocks of %v with %d values; "+
				"use a type with smaller blocks", ErrOptions, t.name, t.shape[1], f, f.Values())
		}
		t.dtype, t.store, found = weight.Blocks(f), expertBlocks, true
	}
	if !found {
		return fmt.Errorf("synth: %w: experts of type %v were requested, but the model has no experts", ErrOptions,
			gateUp)
	}
	return nil
}
