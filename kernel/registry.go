package kernel

import (
	"fmt"
	"strings"

	"sparrow/internal/numa"
)

// Options are the settings of a device when it is opened.
type Options struct {
	Workers int // CPU threads; 0 means one for each core
	// float32 activations are multiplied whole, also where the device's matrix unit would round them to less than 24
	// bits, or products with block formats to 8; slower
	Precise bool
	Limits  Limits // limits of a GPU that behaves like a smaller GPU
	Ordinal int    // which of several devices, such as GPUs; 0 is the first
	Pack    bool   // copy weights to memory that is fast to read, where they are otherwise read from their file
	// NUMA, where not nil, divides workers and copies of weights among the memory nodes of a CPU.
	NUMA *numa.Machine
}

// Backend is a registered implementation of all operations.
type Backend struct {
	Name     string // as in --kernels
	Hardware string // "cpu" or "sm90": the planner's hardware it runs on
	Summary  string // one line for --help and errors
	// Available returns the reason why the backend cannot run here, or nil.
	Available func() error
	Open      func(Options) (Device, error)
}

// Registry is the list of backends of this build, best first for each hardware.
type Registry struct{ backends []Backend }

// NewRegistry joins lists of backends, in order of preference.
func NewRegistry(lists ...[]Backend) *Registry {
	r := &Registry{}
	for _, l := range lists {
		r.backends = append(r.backends, l...)
	}
	return r
}

// Backends lists every registered backend.
func (r *Registry) Backends() []Backend { return r.backends }

// Open opens a backend by name. The name of a hardware ("cpu") opens the best available backend for it.
func (r *Registry) Open(name string, o Options) (Device, error) {
	var reasons []string
	for _, b := range r.backends {
		if b.Name != name && b.Hardware != name {
			continue
		}
		if b.Name != name && strings.HasPrefix(b.Name, "ref") {
			continue // the reference is never chosen unless it is named
		}
		if err := b.Available(); err != nil {
			why := err.Error()
			if b.Name != name {
				why = b.Name + ": " + why
			}
			reasons = append(reasons, why)
			continue
		}
		return b.Open(o)
	}
	if len(reasons) > 0 {
		return nil, fmt.Errorf("%w: %s (%s)", ErrUnavailable, name, strings.Join(reasons, "; "))
	}
	var names []string
	for _, b := range r.backends {
		names = append(names, b.Name)
	}
	return nil, fmt.Errorf("%w: no kernels named %q; this build has %s; cpu is the best of them on this machine",
		ErrUnavailable, name, strings.Join(names, ", "))
}
