package host

import (
	"sparrow/kernel"
	"sparrow/sample"
)

// Sampler samples tokens in host memory. It keeps its scratch memory between calls.
type Sampler struct{ scratch *sample.Scratch }

// Sample samples row after row.
func (s *Sampler) Sample(a kernel.SampleArgs) error {
	if s.scratch == nil || s.scratch.Vocabulary() < a.Logits.Cols {
		var err error
		if s.scratch, err = sample.NewScratch(a.Logits.Cols); err != nil {
			return err
		}
	}
	for r := range a.Logits.Rows {
		if d := sample.Drawn(RowI32(a.Draws, r)); d.Inverse != 0 {
			id := RowI32(a.IDs, r)
			id[0] = s.scratch.Choose(RowF32(a.Logits, r), id[0], d)
		}
	}
	return nil
}
