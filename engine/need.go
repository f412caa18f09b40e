package engine

import (
	"fmt"
	"strings"

	"sparrow/internal/model"
	"sparrow/internal/step"
	"sparrow/internal/unit"
	"sparrow/kernel"
	"sparrow/plan"
)

// Need holds the memory that a model needs on a device with its own memory, in bytes, and the free memory.
type Need struct {
	Weights int64 // bytes of weights, as the device stores them
	Cache   int64 // bytes of the cache: the requested size, or enough for one prompt of maximum length
	Arena   int64 // bytes of the largest pass
	Scratch int64 // bytes of scratch memory of operations
	Graphs  int64 // bytes of captured graphs
	Free    int64 // bytes that were free before the model was loaded
	Tokens  int   // size of the cache in tokens
}

// ownUse is the memory reserved for the driver's queues and for alignment, in bytes.
const ownUse = 256 << 20

// Total returns the number of bytes that must be free.
func (n *Need) Total() int64 { return n.Weights + n.Cache + n.Arena + n.Scratch + n.Graphs + ownUse }

// Err returns an error if there is not enough free memory, otherwise nil.
func (n *Need) Err(where string) error {
	if n.Total() <= n.Free {
		return nil
	}
	text := fmt.Sprintf("the model needs %s of %s, but %s are free: weights %s, cache %s (%d tokens), largest "+
		"step %s, operations %s, graphs %s, driver %s", unit.Bytes(n.Total()), where, unit.Bytes(n.Free),
		unit.Bytes(n.Weights), unit.Bytes(n.Cache), n.Tokens, unit.Bytes(n.Arena), unit.Bytes(n.Scratch),
		unit.Bytes(n.Graphs), unit.Bytes(ownUse))
	var try []string
	if n.Weights+ownUse < n.Free {
		try = append(try, "choose smaller steps (--step-tokens), fewer sequences (--max-running) or less cache "+
			"(--cache-tokens)")
	}
	try = append(try, "end other programs on the GPU", "run on the CPU (--kernels cpu)")
	return fmt.Errorf("sparrow: %w: %s; %s", kernel.ErrMemory, text, strings.Join(try, ", "))
}

// Measure returns the memory that a model needs. The model must be loaded on a device that allocates and computes
// nothing (kernel.DryRunner); free is the free memory of the device before the load.
func Measure(m model.Model, c Config, free int64) (*Need, error) {
	s, err := resolve(m, c)
	if err != nil {
		return nil, err
	}
	z, cfg := &sizing{setup: s}, s.info.Config
	n := &Need{Free: free, Tokens: c.CacheTokens}
	if n.Tokens == 0 {
		n.Tokens = min(max(c.StepTokens, c.ContextTokens), m.Config().MaxPositions)
	}
	pages := wholePages(n.Tokens, cfg.Page)
	n.Tokens = pages * cfg.Page
	size := z.cacheOf(&cfg, pages)
	n.Cache = size.bytes + size.states
	if err := z.allocateCache(&cfg, size); err != nil {
		return nil, err
	}
	passes, err := step.New(m, cfg, z.limits(min(m.Config().MaxPositions, n.Tokens)))
	if err != nil {
		return nil, err
	}
	defer passes.Close()
	n.Arena, n.Graphs = passes.Bytes(), passes.Graphs().Budget
	if o, ok := m.Device().(kernel.MemoryOwner); ok {
		use := o.MemoryUse()
		n.Weights, n.Scratch = use.Weights, use.Scratch
	}
	return n, nil
}

// onDevice reports whether a configuration is for a device with its own memory.
func onDevice(cfg *plan.Config) bool { return cfg.Hardware.Arch != plan.CPU }
