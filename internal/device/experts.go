package device

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"sparrow/engine"
	"sparrow/internal/cost"
	"sparrow/internal/device/offload"
	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/model/placement"
	"sparrow/internal/model/usage"
	"sparrow/kernel"
)

// ExpertHomes selects the memories that may hold the experts of a model.
type ExpertHomes string

// Memories that may hold experts.
const (
	ExpertsAuto     ExpertHomes = "auto"   // the default: ExpertsOnDevice if the model fits, else ExpertsSplit
	ExpertsOnDevice ExpertHomes = "device" // all experts are in device memory; a model that does not fit is refused
	// ExpertsSplit places as many experts as fit in device memory, those chosen most often first; the other experts are
	// in host memory.
	ExpertsSplit  ExpertHomes = "split"
	ExpertsOnHost ExpertHomes = "host" // all experts are in host memory
	// ExpertsMove places experts like ExpertsSplit; between steps it also moves to the device the experts that rows
	// chose most often recently. The arithmetic of a row then changes over time.
	ExpertsMove ExpertHomes = "move"
)

// Split reports whether experts may be in host memory by the user's choice, which needs a GPU.
func (h ExpertHomes) Split() bool { return h == ExpertsSplit || h == ExpertsOnHost || h == ExpertsMove }

// ParseExpertHomes parses the value of the flag --experts; empty means ExpertsAuto.
func ParseExpertHomes(s string) (ExpertHomes, error) {
	switch h := ExpertHomes(s); h {
	case "":
		return ExpertsAuto, nil
	case ExpertsAuto, ExpertsOnDevice, ExpertsSplit, ExpertsOnHost, ExpertsMove:
		return h, nil
	}
	return "", fmt.Errorf("experts %q: want auto, device, split, host or move", s)
}

// SplitCache is the default cache size of a GPU, in tokens, if all other memory is used for experts: 32 sequences of
// 8192 tokens.
const SplitCache = 32 * 8192

// SplitRows is the number of rows of a decode step for which experts in host memory are divided between the CPU and
// transfers over the bus, if that many sequences may run.
const SplitRows = 32

// spareMemory is the memory that remains free on a GPU that experts would otherwise fill; on a small GPU less. The
// driver needs memory for graphs and queues, and allocates in blocks of 2 MiB, of which 300 MiB are unused with
// DeepSeek-V4-Flash.
const spareMemory = 1 << 30

// ExpertRequest holds the inputs of the placement of experts.
type ExpertRequest struct {
	Homes   ExpertHomes
	Memory  int64         // maximum bytes of device memory to use; 0 means all free memory
	Workers int           // number of CPU threads that compute experts; 0 means one less than the number of cores
	Timeout time.Duration // maximum time that the device waits for the CPU threads; 0 means offload.Timeout
	Usage   *usage.Table  // counts of chosen experts; nil means that all experts are chosen equally often
	Chunk   int           // number of prompt rows in one step
	Rows    int           // number of rows of the decode step for which methods are chosen; 0 means one row
	// Deterministic uses one method for decodes and prompts, for each expert in host memory.
	Deterministic bool
	// Measure returns the memory of a model that was loaded on a device without memory; free is the free memory of the
	// device.
	Measure func(m model.Model, free int64) (*engine.Need, error)
}

// PlacedExperts holds the placement of a model's experts, and the host that computes the experts in host memory.
type PlacedExperts struct {
	family.Placed
	Choice *placement.Choice
}

// Close stops the workers of the host. The device that uses the results of the workers must be idle.
func (p *PlacedExperts) Close() error {
	if p == nil || p.Host == nil {
		return nil
	}
	return p.Host.Close()
}

// PlaceExperts chooses a memory for each expert of a model on a device with its own memory. The memory for everything
// else is measured with all experts on the host; experts get the remaining memory.
func PlaceExperts(r *kernel.Registry, src *family.Source, dev kernel.Device, q ExpertRequest) (_ *PlacedExperts,
	err error) {
	if _, ok := dev.(kernel.DryRunner); !ok {
		return nil, fmt.Errorf("sparrow: %w: experts %s on %s; only a GPU has a memory of its own: omit --experts",
			kernel.ErrUnsupported, q.Homes, dev.Name())
	}
	cores, err := r.Open("cpu", kernel.Options{Workers: hostWorkers(q.Workers), Pack: true})
	if err != nil {
		return nil, err
	}
	host, err := offload.New(cores, offload.Options{Timeout: q.Timeout, Awake: true})
	if err != nil {
		return nil, errors.Join(err, cores.Close())
	}
	p := &PlacedExperts{Placed: family.Placed{Host: host, Movable: q.Homes == ExpertsMove}}
	on, source := FiguresOf(r, dev, cores, hostWorkers(q.Workers))
	if err := p.choose(src, dev, on, q); err != nil {
		return nil, errors.Join(err, host.Close())
	}
	if source != "" {
		p.Choice.Reasons = append(p.Choice.Reasons, source)
	}
	return p, nil
}

// hostWorkers returns the number of threads that compute experts on the host of a GPU, if the number was not given or
// equals the number of cores: one core is left for the thread that waits for the GPU without sleeping. A worker on the
// core of that thread would delay all other workers.
func hostWorkers(asked int) int {
	cores := runtime.GOMAXPROCS(0)
	if asked > 0 && asked < cores {
		return asked
	}
	return max(cores-1, 1)
}

// choose finds a placement of experts with which the model fits on the device.
func (p *PlacedExperts) choose(src *family.Source, dev kernel.Device, on cost.Machine, q ExpertRequest) error {
	layers, experts := src.ExpertLayers()
	measure := func(at *placement.Placement) (n *engine.Need, err error) {
		there := family.Placed{Placement: at, Host: p.Host.DryRun(), Movable: p.Movable}
		err = tried(src, dev, trial{placed: there}, func(m model.Model, free int64) (err error) {
			n, err = q.Measure(m, free)
			return err
		})
		return n, err
	}
	none, err := measure(placement.Uniform(layers, experts, 1))
	if err != nil {
		return err
	}
	all, err := measure(nil)
	if err != nil {
		return err
	}
	ask := placement.Ask{Layers: src.LayerExperts(), Chosen: src.ChosenExperts(), Format: src.ExpertFormat(),
		Shared: src.PlainExperts(),
		Host:   p.Host.Memory(), Machine: on, Chunk: q.Chunk,
		Usage: q.Usage, OneMethod: q.Deterministic, Rows: q.Rows}
	count := 0
	for _, n := range ask.Layers {
		count += n
	}
	if count == 0 {
		return fmt.Errorf("sparrow: experts %s: %s has no experts; omit --experts", q.Homes, src.Name)
	}
	ask.Bytes = (all.Weights - none.Weights + int64(count) - 1) / int64(count)
	free := none.Free - min(none.Free/64, spareMemory)
	if q.Memory > 0 {
		free = min(free, q.Memory)
	}
	if ask.Device = free - none.Total(); q.Homes == ExpertsOnHost {
		ask.Device = min(ask.Device, 0)
	}
	// The sizes of buffers for fetched experts and of scratch memory are known only for a given placement. So the
	// number of experts on the device is reduced, in growing steps, until everything fits.
	for range 16 {
		if p.Choice, err = placement.Choose(ask); err != nil {
			advice := ""
			if errors.Is(err, placement.ErrNoRoom) {
				advice = "; add memory, or choose a smaller cache (--cache-tokens, --max-running) or smaller steps " +
					"(--step-tokens)"
			}
			return fmt.Errorf("sparrow: %s on %s: %w%s", src.Name, Describe(dev), err, advice)
		}
		n, err := measure(p.Choice.Placement)
		if err != nil {
			return err
		}
		over := n.Total() - free
		if over <= 0 {
			p.Placement = p.Choice.Placement
			if p.Movable {
				p.Choice.Reasons = append(p.Choice.Reasons, "move: experts move between steps as their use changes. "+
					"Then another processor computes a row, which changes its last bits: the same prompt may get a "+
					"different answer later. With split, experts stay where they are")
			}
			return nil
		}
		ask.Device -= over + ask.Bytes
	}
	return fmt.Errorf("sparrow: %w: no placement of the experts of %s fits %s", kernel.ErrMemory, src.Name,
		Describe(dev))
}
