package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"sparrow"
	"sparrow/engine"
	bench "sparrow/internal/bench/model"
	"sparrow/internal/device"
	"sparrow/internal/model"
	"sparrow/internal/unit"
	"sparrow/kernel"
	"sparrow/plan"
)

// leastGPUMemory is the minimum value of --gpu-memory in bytes. A smaller number was probably given without a unit.
const leastGPUMemory = 1 << 20

// expertFlags select the placement of experts.
type expertFlags struct{ experts, gpuMemory string }

func (f *expertFlags) add(s *pflag.FlagSet) {
	s.StringVar(&f.experts, "experts", string(sparrow.ExpertsAuto), "on a GPU, where experts are: auto (device where "+
		"the model fits, else split), device (all on it), split (as many on the device as fit, the others in host "+
		"memory), host, or move (split, and the most chosen ones move to the device between steps: the last bits of "+
		"results change over time)")
	s.StringVar(&f.gpuMemory, "gpu-memory", "0",
		"with --experts auto, split or move, maximum memory of the GPU that is used, such as 100G; 0 means all that "+
			"is free")
}

// homes parses the flags: the memories that may hold experts, and the maximum GPU memory in bytes.
func (f *expertFlags) homes() (sparrow.ExpertHomes, int64, error) {
	if *f == (expertFlags{}) { // the command has no such flags
		return sparrow.ExpertsOnDevice, 0, nil
	}
	h, err := device.ParseExpertHomes(f.experts)
	if err == nil && f.experts == "" {
		err = errors.New("experts: no value is given; want auto, device, split, host or move")
	}
	if err != nil {
		return "", 0, fmt.Errorf("--%w", err)
	}
	n, err := parseBytes(f.gpuMemory)
	if err == nil && n > 0 && n < leastGPUMemory {
		err = fmt.Errorf("%q is less than %s; give a unit, such as 100G", f.gpuMemory, unit.Bytes(leastGPUMemory))
	}
	if err != nil {
		return "", 0, fmt.Errorf("--gpu-memory: %w", err)
	}
	if n > 0 && (h == sparrow.ExpertsOnDevice || h == sparrow.ExpertsOnHost) {
		return "", 0, fmt.Errorf("--gpu-memory %s limits the memory of experts and everything else; give it with "+
			"--experts auto, split or move", f.gpuMemory)
	}
	return h, n, nil
}

// place sets up q so that experts may be in host memory when the device is opened. The device memory for experts is
// what remains after the largest batch at the longest context. With ExpertsAuto, experts are in host memory only if the
// weights do not fit the device.
func (f *benchModelFlags) place(q *device.Request, o *bench.Options) (*device.PlacedExperts, error) {
	placed := &device.PlacedExperts{}
	homes, memory, err := f.homes()
	if err != nil || homes == sparrow.ExpertsOnDevice || f.ranks > 1 && homes == sparrow.ExpertsAuto {
		return placed, err
	}
	if homes == sparrow.ExpertsMove {
		return placed, errors.New("bench model: --experts move: experts move only while requests are served (serve, " +
			"run, eval, bench serve); use split")
	}
	if homes.Split() {
		q.Experts = homes
	}
	q.Fits = func(dev kernel.Device, of kernel.Member) error {
		if homes == sparrow.ExpertsAuto && memory == 0 {
			err := device.WeightsFit(q.Source, dev, of)
			if err == nil || !errors.Is(err, kernel.ErrMemory) || q.Source.ChosenExperts() == 0 {
				return err
			}
			q.Warn(fmt.Sprintf("--experts auto: some experts are in host memory: %v", err))
		}
		got, err := f.placeOn(dev, q, o, memory)
		if err == nil {
			*placed = *got
		}
		return err
	}
	return placed, nil
}

// placeOn divides experts between device memory and host memory.
func (f *benchModelFlags) placeOn(dev kernel.Device, q *device.Request, o *bench.Options, memory int64) (
	*device.PlacedExperts, error) {
	if len(o.Contexts) == 0 || len(o.Batches) == 0 {
		return nil, errors.New("bench model: experts in host memory need --contexts and --batch, which are not set; " +
			"they determine the cache size, and experts get the rest of the GPU's memory")
	}
	if o.Chunk == 0 {
		o.Chunk = 8192
	}
	if len(o.Prompts) == 0 {
		o.Prompts = []int{8192}
	}
	homes := q.Experts
	if !homes.Split() {
		homes = sparrow.ExpertsSplit
	}
	longest, most := max(slices.Max(o.Contexts), slices.Max(append(o.Prompts, 0))), slices.Max(o.Batches)
	p, _ := device.PolicyOn(dev, q.Source.Model, q.Policy)
	return device.PlaceExperts(registry(), q.Source, dev, device.ExpertRequest{Homes: homes, Memory: memory,
		Workers: q.Workers, Chunk: o.Chunk, Rows: most,
		Measure: func(m model.Model, free int64) (*engine.Need, error) {
			n, err := engine.Measure(m, engine.Config{Policy: p, CacheTokens: longest + o.Chunk, StepTokens: o.Chunk,
				MaxRunning: most, RecordBytes: -1}, free)
			if err != nil {
				return nil, err
			}
			// In a benchmark, no two sequences share pages.
			cfg, _, err := resolved(m, p)
			if err != nil {
				return nil, err
			}
			n.Cache = o.CacheBytes(m, &cfg)
			o.MemoryBytes = max(o.MemoryBytes, n.Cache)
			return n, nil
		}})
}

// resolved returns the configuration of a model on its device.
func resolved(m model.Model, p plan.Policy) (plan.Config, []plan.Notice, error) {
	hw, err := model.Hardware(m.Device())
	if err != nil {
		return plan.Config{}, nil, err
	}
	return plan.Resolve(hw, m.Facts(), p)
}
