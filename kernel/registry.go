package kernel

import (
	"fmt"
	"strings"

	"sparrow/internal/numa"
)

// Options are the settings of a device when it is opened.
type Options struct {
	Workers int // number of CPU threads; 0 means one for each core
	// Precise multiplies float32 activations at full precision. Otherwise a device's matrix unit may round them to
	// fewer than 24 bits, or to 8 bits in products with block formats, which is faster.
	Precise bool
	Limits  Limits // limits that restrict a GPU to the properties of a smaller GPU
	Ordinal int    // number of the device among several of its kind, such as GPUs; 0 is the first
	Pack    bool   // copy weights to memory that is fast to read, instead of reading them from their mapped file
	// NUMA describes the memory nodes among which workers and copies of weights are divided; nil disables this.
	NUMA *numa.Machine
}

// Backend is a registered implementation of all operations.
type Backend struct {
	Name     string // value of --kernels
	Hardware string // hardware that it runs on, by its name in plans: "cpu" or "sm90"
	Summary  string // one line for --help and errors
	// Available returns the reason why the backend cannot run here, or nil.
	Available func() error
	Open      func(Options) (Device, error)
}

// Registry is the list of backends of this build, best first for each hardware.
type Registry struct{ backends []Backend }

// NewRegistry joins lists of backends. The order of the lists is the order of preference.
func NewRegistry(lists ...[]Backend) *Registry {
	r := &Registry{}
	for _, l := range lists {
		r.backends = append(r.backends, l...)
	}
	return r
}

// Backends lists every registered backend.
func (r *Registry) Backends() []Backend { return r.backends }

// Open opens a backend by name. The name of hardware ("cpu") opens the best available backend for that hardware.
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
