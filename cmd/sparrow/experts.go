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

// leastGPUMemory is the least that --gpu-memory takes: a smaller number lacks its unit.
const leastGPUMemory = 1 << 20

// expertFlags state where experts are.
type expertFlags struct{ experts, gpuMemory string }

func (f *expertFlags) add(s *pflag.FlagSet) {
	s.StringVar(&f.experts, "experts", string(sparrow.ExpertsOnDevice), "on a GPU, where experts are: device, split "+
		"(as many on the device as fit, the others in host memory), host, or auto (split, and those that are chosen "+
		"most move to the device between steps: bits of answers change over time)")
	s.StringVar(&f.gpuMemory, "gpu-memory", "0", "with --experts split or auto, most memory of the GPU that is used, "+
		"such as 100G; 0 is all that is free")
}

// homes reads the flags.
func (f *expertFlags) homes() (sparrow.ExpertHomes, int64, error) {
	if *f == (expertFlags{}) { // a command without the flags
		return sparrow.ExpertsOnDevice, 0, nil
	}
	h, err := device.ParseExpertHomes(f.experts)
	if err == nil && f.experts == "" {
		err = errors.New("experts: no value is given; want device, split, host or auto")
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
	if n > 0 && h != sparrow.ExpertsSplit && h != sparrow.ExpertsAuto {
		return "", 0, fmt.Errorf("--gpu-memory %s bounds the memory of experts and everything else; give it with "+
			"--experts split or auto", f.gpuMemory)
	}
	return h, n, nil
}

// place lets the device be opened with a placement of experts, where they may be in host memory: the memory that it
// leaves for them follows from the largest batch at the longest context.
func (f *benchModelFlags) place(q *device.Request, o *bench.Options) (*device.PlacedExperts, error) {
	placed := &device.PlacedExperts{}
	homes, memory, err := f.homes()
	if err != nil || homes == sparrow.ExpertsOnDevice {
		return placed, err
	}
	if homes == sparrow.ExpertsAuto {
		return placed, errors.New("bench model: --experts auto: experts move while requests are served (serve, run, " +
			"eval, bench serve); ask for split")
	}
	if len(o.Contexts) == 0 || len(o.Batches) == 0 {
		return placed, errors.New("bench model: --experts: give --contexts and --batch: the cache of the largest is " +
			"reserved, and experts get what is left of the GPU")
	}
	if o.Chunk == 0 {
		o.Chunk = 8192
	}
	if len(o.Prompts) == 0 {
		o.Prompts = []int{8192}
	}
	q.Experts = homes
	chunk := o.Chunk
	longest, most := max(slices.Max(o.Contexts), slices.Max(append(o.Prompts, 0))), slices.Max(o.Batches)
	q.Fits = func(dev kernel.Device, _ kernel.Member) error {
		p := q.Policy
		p, _ = device.PolicyOn(dev, q.Source.Model, p)
		got, err := device.PlaceExperts(registry(), q.Source, dev, device.ExpertRequest{Homes: homes, Memory: memory,
			Workers: q.Workers, Chunk: chunk, Rows: most,
			Measure: func(m model.Model, free int64) (*engine.Need, error) {
				n, err := engine.Measure(m, engine.Config{Policy: p, CacheTokens: longest + chunk, StepTokens: chunk,
					MaxRunning: most, RecordBytes: -1}, free)
				if err != nil {
					return nil, err
				}
				// Every sequence of a bench has pages of its own.
				cfg, _, err := resolved(m, p)
				if err != nil {
					return nil, err
				}
				n.Cache = o.CacheBytes(m, &cfg)
				o.MemoryBytes = max(o.MemoryBytes, n.Cache)
				return n, nil
			}})
		if err == nil {
			*placed = *got
		}
		return err
	}
	return placed, nil
}

// resolved is the configuration of a model on its device.
func resolved(m model.Model, p plan.Policy) (plan.Config, []plan.Notice, error) {
	hw, err := model.Hardware(m.Device())
	if err != nil {
		return plan.Config{}, nil, err
	}
	return plan.Resolve(hw, m.Facts(), p)
}
