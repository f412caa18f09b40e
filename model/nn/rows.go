package nn

import "sparrow/kernel"

// Picker copies chosen rows into memory of its own, such as those whose logits are wanted.
type Picker struct{ list, rows kernel.Scratch }

// NewPicker makes a picker without memory.
func NewPicker(mem kernel.Memory) *Picker {
	return &Picker{list: kernel.NewScratch(mem), rows: kernel.NewScratch(mem)}
}

// Pick copies the rows of x that list names, in its order. The result is valid until the next call.
func (p *Picker) Pick(dev kernel.Device, x kernel.Tensor, list []int32) (kernel.Tensor, error) {
	which, err := p.list.Take(kernel.I32, len(list), 1)
	if err != nil {
		return kernel.Tensor{}, err
	}
	if err := kernel.WriteI32(dev, which, list); err != nil {
		return kernel.Tensor{}, err
	}
	out, err := p.rows.Take(x.DType, len(list), x.Cols)
	if err != nil {
		return kernel.Tensor{}, err
	}
	return out, dev.Take(kernel.TakeArgs{Out: out, X: x, Rows: which})
}

// Head picks the rows whose logits are wanted and multiplies them by the matrix of the vocabulary, in memory of its own.
type Head struct {
	*Picker
	logits kernel.Scratch
}

// NewHead makes a head without memory.
func NewHead(mem kernel.Memory) *Head {
	return &Head{Picker: NewPicker(mem), logits: kernel.NewScratch(mem)}
}

// Logits is x [n, hidden] times w [vocabulary, hidden], f32 [n, vocabulary]. It is valid until the next call.
func (h *Head) Logits(dev kernel.Device, x kernel.Tensor, w kernel.Matrix) (kernel.Tensor, error) {
	out, err := h.logits.Take(kernel.F32, x.Rows, w.Out())
	if err != nil {
		return kernel.Tensor{}, err
	}
	return out, dev.Multiply(kernel.MultiplyArgs{Out: out, X: x, W: w})
}
