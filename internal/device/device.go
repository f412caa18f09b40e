// Package device opens the hardware that a model runs on: a device, a group of ranks, or a GPU with some experts on its
// host. It checks, before anything is loaded, whether the model can run there and fits.
package device

import (
	"errors"
	"fmt"

	"sparrow/engine"
	"sparrow/internal/cuda/op"
	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/internal/model/family"
	"sparrow/internal/model/placement"
	"sparrow/internal/sysmem"
	"sparrow/internal/unit"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/cuda"
	"sparrow/kernel/ref"
	"sparrow/plan"
)

// AutoKernels lets Open choose the device: the first GPU that can run the model, or else the CPU.
const AutoKernels = "auto"

// Request describes the model that a device is opened for, and its options.
type Request struct {
	kernel.Options
	// Kernels is the name of an implementation; empty means AutoKernels.
	Kernels string
	Source  *family.Source
	Policy  plan.Policy
	// Fits returns an error for a device with too little memory, before weights are loaded; if it is nil, only the size
	// of the weights is compared with the free memory.
	Fits func(kernel.Device, kernel.Member) error
	// Of is the rank of the device; the zero value means a device that runs alone.
	Of kernel.Member
	// Experts selects the placement of experts. If it needs a GPU, AutoKernels does not use a CPU.
	Experts ExpertHomes
	// Warn is called with the reason why an existing GPU is not used. It may be nil.
	Warn func(text string)
}

// Open opens the device for a model. A named implementation that cannot run the model is an error. AutoKernels uses the
// first GPU backend that can run the model, otherwise the CPU; if a GPU exists that is not used, it calls Warn. If
// experts need a GPU and none can be used, Open returns an error.
func Open(r *kernel.Registry, q Request) (kernel.Device, error) {
	if q.Limits.Any() {
		name, err := q.limitedKernels(r)
		if err != nil {
			return nil, err
		}
		return q.open(r, name)
	}
	if q.Kernels != "" && q.Kernels != AutoKernels {
		return q.open(r, q.Kernels)
	}
	var why []error
	var last error // reason why an existing GPU is not used
	for _, b := range r.Backends() {
		if b.Hardware == "cpu" || q.Pack { // packed weights are for a CPU
			continue
		}
		err := b.Available()
		there := err == nil
		if there {
			var dev kernel.Device
			if dev, err = q.open(r, b.Name); err == nil {
				return dev, nil
			}
		}
		why = append(why, fmt.Errorf("%s (%w)", b.Name, err))
		if errors.Is(err, placement.ErrHost) { // the CPU would read the missing weights from the disk for every token
			return nil, fmt.Errorf("%w; --kernels cpu runs the model anyway, and reads weights that do not fit in "+
				"memory from the disk", err)
		}
		if !errors.Is(err, kernel.ErrAbsent) {
			last = err
		}
		if there {
			break // if the best kernels of a GPU cannot run the model, its other kernels cannot run it either
		}
	}
	if last != nil && q.Warn != nil && !q.Experts.Split() {
		q.Warn(fmt.Sprintf("the GPU is not used; the model runs on the CPU: %v", last))
	}
	if q.Experts.Split() {
		switch {
		case q.Pack:
			why = append(why, errors.New("--pack applies to the CPU only"))
		case len(why) == 0:
			why = append(why, errors.New("this build has no kernels for GPUs"))
		}
		return nil, fmt.Errorf("sparrow: %w: experts %s: only a GPU has a memory of its own, and none can be used: "+
			"%w; omit --experts to run on the CPU", kernel.ErrUnsupported, q.Experts, errors.Join(why...))
	}
	dev, err := r.Open("cpu", q.Options)
	if err != nil {
		return nil, err
	}
	if err := checkDrawn(q.Source, dev, sysmem.Available()); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return dev, nil
}

// limitedKernels returns the kernels of a GPU with limits: the named kernels, or else the first kernels with such a
// GPU.
func (q *Request) limitedKernels(r *kernel.Registry) (string, error) {
	var why []error
	for _, b := range r.Backends() {
		if b.Hardware == "cpu" || b.Name != q.Kernels && q.Kernels != "" && q.Kernels != AutoKernels ||
			b.Name == op.Name && b.Name != q.Kernels && cuda.NeedsPortable(q.Limits) != "" {
			continue
		}
		err := b.Available()
		if err == nil {
			return b.Name, nil
		}
		why = append(why, fmt.Errorf("%s: %w", b.Name, err))
	}
	if why == nil {
		return "",
			fmt.Errorf("sparrow: %w: --kernels %s cannot be combined with limits (--pretend, --limit-...), which "+
				"apply to GPUs; omit them, or use --kernels auto", kernel.ErrUnsupported, q.Kernels)
	}
	return "", fmt.Errorf("sparrow: %w: limits (--pretend, --limit-...) need a GPU that is at least as large: %w; "+
		"'sparrow explain --hw' and 'sparrow inspect --hw' plan without one", kernel.ErrUnavailable,
		errors.Join(why...))
}

// Registry returns the kernels of this build, best first.
func Registry() *kernel.Registry {
	return kernel.NewRegistry(cpu.Backends(), op.Backends(), ref.Backends())
}

// maxDrawn is the maximum number of bytes of random weights in host memory if the free memory is unknown.
const maxDrawn = 8 << 30

// checkDrawn returns an error if random weights in host memory do not fit there. Other weights are read from mapped
// files, or generated by the device in its own memory, and are not checked. free is the number of free bytes, 0 if
// unknown.
func checkDrawn(src *family.Source, dev kernel.Device, free int64) error {
	if _, ok := dev.(kernel.Drawer); ok || !src.Weights.Drawn() {
		return nil
	}
	need := src.Weights.Bytes()
	const instead = "choose a smaller shape ('sparrow synth --help' lists them) or a GPU (--kernels cuda)"
	if free == 0 && need > maxDrawn {
		return fmt.Errorf("sparrow: --dummy: the weights of %s take %s; if the free memory is unknown, at most %s "+
			"are generated: %s", src.Name, unit.Bytes(need), unit.Bytes(maxDrawn), instead)
	}
	if free > 0 && need > free-free/8 {
		return fmt.Errorf("sparrow: --dummy: the weights of %s take %s; %s of memory are free, and at most 7/8 of it "+
			"are used: %s", src.Name, unit.Bytes(need), unit.Bytes(free), instead)
	}
	return nil
}

// open opens an implementation by name and returns an error if it cannot run the model.
func (q *Request) open(r *kernel.Registry, name string) (kernel.Device, error) {
	dev, err := r.Open(name, q.Options)
	if err != nil {
		return nil, err
	}
	if err := q.suits(dev); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return dev, nil
}

// suits returns an error if a device cannot run the model.
func (q *Request) suits(dev kernel.Device) error {
	if err := checkDrawn(q.Source, dev, sysmem.Available()); err != nil {
		return err
	}
	hw, err := model.Hardware(dev)
	if err != nil {
		return err
	}
	facts, err := family.Facts(q.Source.Model)
	if err == nil {
		facts, err = model.Divide(facts, q.Of)
	}
	if err != nil {
		return err
	}
	policy, _ := PolicyOn(dev, q.Source.Model, q.Policy)
	if _, _, err := plan.Resolve(hw, facts, policy); err != nil {
		return err
	}
	if q.Fits != nil {
		return q.Fits(dev, q.Of)
	}
	return WeightsFit(q.Source, dev, q.Of)
}

// WeightsFit returns an error if the free memory of a device is smaller than the weights of a model.
func WeightsFit(src *family.Source, dev kernel.Device, of kernel.Member) error {
	n := &engine.Need{}
	return tried(src, dev, trial{of: of}, func(m model.Model, free int64) error {
		n.Weights, n.Free = m.Device().(kernel.MemoryOwner).MemoryUse().Weights, free
		return n.Err(Describe(dev))
	})
}

// Need returns the memory that a model needs on a device, measured before anything is uploaded; n is nil for a device
// that uses the machine's own memory.
func Need(src *family.Source, dev kernel.Device, of kernel.Member, c engine.Config) (n *engine.Need, err error) {
	err = tried(src, dev, trial{of: of}, func(m model.Model, free int64) (err error) {
		n, err = engine.Measure(m, c, free)
		return err
	})
	return n, err
}

// CheckWeights returns the error that Open would return for the weights of a model on hardware that this machine may
// not have: the reason why the kernels of this build cannot load the weights. facts describes the model as divided
// among its ranks. It does not compare sizes with the memory.
func CheckWeights(src *family.Source, hw plan.Arch, facts plan.Model) (err error) {
	if !hw.CUDA() { // a CPU supports every weight type that a file may contain
		return nil
	}
	dev, err := op.On(cuda.OpenDetached(cuda.H200))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	of := kernel.Member{Ranks: facts.Ranks, Requests: facts.ByRequests()}
	return tried(src, dev, trial{of: of}, func(model.Model, int64) error { return nil })
}

// trial describes a load on a device that stores nothing: the part of the model for one rank, and the placement of its
// experts.
type trial struct {
	of     kernel.Member
	placed family.Placed
}

// tried loads a model on the dry-run device of dev (kernel.DryRunner), which computes and stores nothing, and calls
// look with the model and the free memory. For a device without one it does nothing.
func tried(src *family.Source, dev kernel.Device, t trial, look func(m model.Model, free int64) error) (err error) {
	r, ok := dev.(kernel.DryRunner)
	if !ok {
		return nil
	}
	free, _, err := kernel.MemoryFree(dev)
	if err != nil {
		return err
	}
	empty, err := r.DryRun()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, empty.Close()) }()
	if t.of.Count() > 1 {
		t.of.Rank, t.of.Comm = 0, noCollective{} // all ranks need as much memory as the first rank
	}
	m, err := src.LoadPart(empty, t.of, t.placed, nil)
	if err != nil {
		return err
	}
	return look(m, free)
}

// noCollective implements the collective operations of a rank that is tested alone: they do nothing.
type noCollective struct{}

func (noCollective) AllReduce(kernel.AllReduceArgs) error         { return nil }
func (noCollective) AllGather(kernel.AllGatherArgs) error         { return nil }
func (noCollective) ReduceScatter(kernel.ReduceScatterArgs) error { return nil }
func (noCollective) Broadcast(kernel.BroadcastArgs) error         { return nil }
func (noCollective) ShareRows(kernel.ShareArgs) error             { return nil }

// PolicyOn returns a policy with the defaults of the device that a model runs on, and those defaults as flags.
func PolicyOn(dev kernel.Machine, d config.Description, p plan.Policy) (plan.Policy, []string) {
	facts, err := family.Facts(d)
	if err != nil {
		return p, nil // opening the model reports this error
	}
	hw, err := model.Hardware(dev)
	if err != nil {
		return p, nil // opening the model reports this error too
	}
	return plan.Defaults(&hw, facts.Family, p)
}

// Describe returns the name of a device for messages.
func Describe(dev kernel.Machine) string {
	if d, ok := dev.(interface{ Describe() string }); ok {
		return d.Describe()
	}
	return dev.Name()
}
