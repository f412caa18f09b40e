package sparrow

import (
	"fmt"

	"sparrow/engine"
	"sparrow/internal/device"
	"sparrow/internal/model"
	"sparrow/internal/unit"
	"sparrow/kernel"
)

// fitting checks whether a model fits a device, and places its experts.
type fitting struct {
	registry *kernel.Registry
	config   Config
	parts    *parts

	reserved int64                 // bytes of device memory reserved for scratch of operations and for graphs
	placed   *device.PlacedExperts // nil if all experts are on the device
	chosen   string                // description of the placement that ExpertsAuto chose, with the reason
}

// on chooses the placement of experts for a device, or for one of several ranks. It returns an error if the model does
// not fit.
func (f *fitting) on(dev kernel.Device, of kernel.Member) error {
	c, p := f.config, f.parts
	auto := !c.Experts.Split() && c.Experts != ExpertsOnDevice && of.Count() < 2 && p.source.ChosenExperts() > 0
	_, gpu := dev.(kernel.DryRunner)
	switch {
	case c.Experts.Split():
		return f.place(dev, c.Experts)
	// Experts are split even if the model fits the GPU, because --gpu-memory also limits the cache.
	case auto && gpu && c.DeviceMemory > 0:
		if err := f.place(dev, ExpertsSplit); err != nil {
			return err
		}
		f.explain(fmt.Sprintf("the limit of GPU memory is %s (--gpu-memory)", unit.Bytes(c.DeviceMemory)))
		return nil
	}
	n, err := device.Need(p.source, dev, of, c.onDevice(dev, p.source.Model).engine(p))
	if err != nil || n == nil {
		return err
	}
	n.Free /= c.sharing(of.Rank)
	small := n.Err(device.Describe(dev))
	if small == nil {
		f.reserved = n.Scratch + n.Graphs
	}
	if !auto {
		return small
	}
	if small == nil {
		f.chosen = fmt.Sprintf("all on the GPU: the model needs %s, and %s are free (--experts auto)",
			unit.Bytes(n.Total()), unit.Bytes(n.Free))
		return nil
	}
	if err := f.place(dev, ExpertsSplit); err != nil {
		return fmt.Errorf("%w; with experts in host memory: %w", small, err)
	}
	f.explain(fmt.Sprintf("the model needs %s of GPU memory, but %s are free", unit.Bytes(n.Total()),
		unit.Bytes(n.Free)))
	return nil
}

// place chooses device memory or host memory for each expert.
func (f *fitting) place(dev kernel.Device, homes ExpertHomes) (err error) {
	f.placed, err = device.PlaceExperts(f.registry, f.parts.source, dev, f.config.experts(dev, f.parts, homes))
	if err == nil {
		f.config.Log.Info("experts", "homes", homes, "reasons", f.placed.Choice.Reasons)
	}
	return err
}

// explain records the placement that ExpertsAuto chose, and the reason.
func (f *fitting) explain(why string) {
	x := f.placed.Choice
	f.chosen = fmt.Sprintf("%d of %d on the GPU, the others in host memory, which takes %s: %s (--experts auto)",
		x.Resident, x.Experts, unit.Bytes(x.HostBytes), why)
}

// experts returns the inputs of the placement of experts for a device.
func (c Config) experts(dev kernel.Device, p *parts, homes ExpertHomes) device.ExpertRequest {
	ec := c.onDevice(dev, p.source.Model).besideExperts().engine(p)
	return device.ExpertRequest{Homes: homes, Memory: c.DeviceMemory, Workers: c.Workers, Timeout: ec.Watchdog,
		Usage: c.usage, Chunk: ec.StepTokens, Deterministic: c.Policy.Deterministic,
		Rows:    min(ec.MaxRunning, device.SplitRows),
		Measure: func(m model.Model, free int64) (*engine.Need, error) { return engine.Measure(m, ec, free) }}
}

// besideExperts returns the configuration with a cache size. Without one the cache would take all device memory and
// leave none for experts.
func (c Config) besideExperts() Config {
	if c.CacheTokens == 0 {
		c.CacheTokens = device.SplitCache
		c.defaults = append(c.defaults, fmt.Sprintf("--cache-tokens %d", device.SplitCache))
	}
	return c
}
