package device

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"sparrow/internal/cost"
	"sparrow/internal/cost/probe"
	"sparrow/internal/kv/tier"
	computer "sparrow/internal/machine"
	"sparrow/internal/model/placement"
	"sparrow/kernel"
)

// FiguresOf returns the rates of a GPU and of its host's CPU, by which methods of experts are chosen. It returns the
// rates of the table (package cost) if both are in it, otherwise the rates that were saved for this machine. Without
// saved rates, it measures and saves them. source describes their origin; it is empty for a machine of the table.
func FiguresOf(r *kernel.Registry, dev, cores kernel.Device, workers int) (on cost.Machine, source string) {
	if rate := dev.Hardware().BusRate; rate > 0 {
		defer func() { on.Bus.Rate = min(on.Bus.Rate, float64(rate)/1e6) }()
	}
	on = cost.H200()
	on.CPU.Cores = workers
	if strings.Contains(dev.Hardware().Model, "H200") && !cores.Hardware().NoTiles {
		return on, ""
	}
	name := MachineName(dev, cores, workers)
	path, failed := cost.KeptPath(name)
	f, kept := cost.LoadFigures(path, name)
	if !kept {
		var err error
		if f, err = measure(r, dev, workers); err != nil {
			return on, fmt.Sprintf("the rates of CPU and bus are those of %s and its host: those of %s could not be "+
				"measured: %v", on.Device, name, err)
		}
		if failed == nil {
			failed = cost.SaveFigures(path, name, f)
		}
	}
	on.CPU, on.Bus = f.CPU, f.Bus
	where := fmt.Sprintf("are saved in %s: servers with the same file choose the same methods", path)
	if failed != nil {
		where = fmt.Sprintf("could not be saved, so the next start may choose other methods: %v", failed)
	}
	return on, fmt.Sprintf("the rates of CPU and bus were measured on %s and %s", name, where)
}

// MachineName returns the key under which figures are saved.
func MachineName(dev, cores kernel.Device, workers int) string {
	return fmt.Sprintf("%s, %d cores of %s (%s)", dev.Hardware().Model, workers, computer.Here().CPU, cores.Name())
}

// measure measures the rates of the CPU, with a device that is closed afterwards, and of the bus of a GPU.
func measure(r *kernel.Registry, dev kernel.Device, workers int) (f cost.Figures, err error) {
	cores, err := r.Open("cpu", kernel.Options{Workers: workers})
	if err != nil {
		return f, err
	}
	if f.CPU, err = probe.Host(cores, workers, time.Now); err == nil {
		f.Bus, err = probe.Bus(dev, time.Now)
	}
	return f, errors.Join(err, cores.Close())
}

// Identity returns the identity of pages in tiers: the weights, and the experts that the CPU computes, whose arithmetic
// differs. If experts move, it is the identity of the weights only.
func (p *PlacedExperts) Identity(weights tier.Fingerprint) tier.Fingerprint {
	if p == nil {
		return weights
	}
	if p.Movable {
		return sha256.Sum256(append(weights[:], "auto"...))
	}
	text, computed := weights[:], false
	for _, phase := range [][][]placement.Method{p.Placement.Decode, p.Placement.Prefill} {
		for l, layer := range phase {
			for e, m := range layer {
				if m == placement.Computed {
					text, computed = fmt.Append(text, l, e, ";"), true
				}
			}
		}
		text = append(text, '/')
	}
	if !computed {
		return weights
	}
	return sha256.Sum256(text)
}
