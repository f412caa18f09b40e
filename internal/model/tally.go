package model

import (
	"encoding/binary"
	"fmt"

	"sparrow/internal/model/usage"
	"sparrow/kernel"
)

// ExpertCounter is a model that counts, on its device, which experts rows choose.
type ExpertCounter interface {
	// CountExperts enables counting in all passes that are arranged later. It returns an error if the device cannot
	// count.
	CountExperts() error
	// ReadExperts adds the counts since the previous call to a table. It waits for the device.
	ReadExperts(to *usage.Table) error
}

// ExpertMover is a model whose experts can move between device and host memory.
type ExpertMover interface {
	// SwapExperts makes expert `in` of a layer, which is in host memory, resident, and moves expert `out` to host
	// memory, with the previous methods of `in`. It waits for the device (kernel.ExpertSwapper).
	SwapExperts(layer, in, out int) error
}

// Tally holds the counters of a model's experts on its device. A nil Tally counts nothing.
type Tally struct {
	dev    kernel.Memory
	counts kernel.Tensor // i32 [layers, experts]
	last   []uint32      // values at the previous reading; counters overflow to 0
	read   []byte
}

// NewTally allocates the memory of the counters, including those of drafting layers.
func NewTally(dev kernel.Device, layers, experts int) (*Tally, error) {
	if _, ok := dev.(kernel.Tallier); !ok {
		return nil, fmt.Errorf("%w: %s cannot count the chosen experts; run on a CPU or a GPU, or without counting",
			kernel.ErrUnsupported, dev.Name())
	}
	counts, err := kernel.New(dev, kernel.I32, layers, experts)
	if err != nil {
		return nil, fmt.Errorf("allocating counters of %d experts in %d layers: %w", experts, layers, err)
	}
	return &Tally{dev: dev, counts: counts, last: make([]uint32, layers*experts), read: make([]byte, 4*layers*experts)},
		nil
}

// layer returns the counters of a layer's experts, i32 [1, experts].
func (t *Tally) layer(i int) kernel.Tensor {
	if t == nil {
		return kernel.Tensor{}
	}
	return t.counts.Slice(i, i+1)
}

// Read adds the counts since the previous call to a table of the same shape. Layers in which no expert was chosen are
// skipped, because they may have no experts.
func (t *Tally) Read(to *usage.Table) error {
	if err := t.dev.Read(t.read, t.counts); err != nil {
		return fmt.Errorf("reading the counters of experts: %w", err)
	}
	n := t.counts.Cols
	counts := make([]uint64, n)
	for l := range t.counts.Rows {
		any := false
		for e := range n {
			at := l*n + e
			now := binary.NativeEndian.Uint32(t.read[4*at:])
			counts[e], t.last[at] = uint64(now-t.last[at]), now
			any = any || counts[e] > 0
		}
		if any {
			to.Add(l, counts)
		}
	}
	return nil
}
