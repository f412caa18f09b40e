package device

import (
	"errors"
	"testing"

	"sparrow/builtin"
	"sparrow/engine"
	"sparrow/internal/cost"
	"sparrow/internal/cuda/op"
	"sparrow/internal/model"
	"sparrow/internal/model/placement"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/cuda"
	"sparrow/plan"
)

// Experts are on the device as far as its memory suffices, of which a part stays free, or as far as a limit allows. All
// other experts are in host memory; with ExpertsOnHost these are all experts.
func TestExpertsOnTheDeviceFitItsMemory(t *testing.T) {
	src, err := builtin.Source()
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	r := kernel.NewRegistry(cpu.Backends())
	dev, err := op.On(cuda.OpenDetached(cuda.H200))
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	cores, err := r.Open("cpu", kernel.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer cores.Close()
	// Figures are stored, so that none are measured.
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	name, on := MachineName(dev, cores, 1), cost.H200()
	path, err := cost.KeptPath(name)
	if err == nil {
		err = cost.SaveFigures(path, name, cost.Figures{Bus: on.Bus, CPU: on.CPU})
	}
	if err != nil {
		t.Fatal(err)
	}
	var need *engine.Need // memory that the model needs with the last placement that was measured
	each := int64(0)      // bytes of an expert
	place := func(homes ExpertHomes, free, limit int64) (resident, others int, err error) {
		p, err := PlaceExperts(r, src, dev, ExpertRequest{Homes: homes, Memory: limit, Workers: 1, Chunk: 512,
			Measure: func(m model.Model, _ int64) (*engine.Need, error) {
				// The weights are as large as those of a model whose experts are larger than the driver's memory.
				need = &engine.Need{Weights: 100 * m.Device().(kernel.MemoryOwner).MemoryUse().Weights, Free: free}
				return need, nil
			}})
		if err != nil {
			return 0, 0, err
		}
		if p.Choice.Resident > 0 {
			each = p.Choice.DeviceBytes / int64(p.Choice.Resident)
		}
		for l := range p.Placement.Decode {
			resident += len(p.Placement.Resident(l))
			others += len(p.Placement.OnHost(l))
		}
		return resident, others, p.Close()
	}
	const large = 100 << 30
	all, none, err := place(ExpertsSplit, large, 0)
	if err != nil || all == 0 || none != 0 {
		t.Fatalf("a large device has %d experts, the host %d, error %v", all, none, err)
	}
	whole := need.Total()
	if resident, others, err := place(ExpertsOnHost, large, 0); err != nil || resident != 0 || others != all {
		t.Errorf("experts on the host: %d on the device, %d on the host, error %v", resident, others, err)
	}
	least := need.Total()
	between := (whole + least) / 2
	for name, c := range map[string]struct{ free, limit, most int64 }{
		"free memory for half of the experts": {between, 0, between - between/64},
		"a limit for half of the experts":     {large, between, between},
		"free memory for all experts exactly": {whole, 0, whole - whole/64},
		"a little more than all experts":      {whole + whole/32, 0, whole},
	} {
		resident, others, err := place(ExpertsSplit, c.free, c.limit)
		if err != nil || resident+others != all || need.Total() > c.most || (others == 0) != (c.most == whole) {
			t.Errorf("%s: %d of %d experts are on the device, %d on the host, %d bytes of at most %d, error %v", name,
				resident, all, others, need.Total(), c.most, err)
		}
		if others > 0 && need.Total()+3*each <= c.most {
			t.Errorf("%s: more experts fit: %d bytes of %d", name, need.Total(), c.most)
		}
	}
	if _, _, err := place(ExpertsSplit, least/2, 0); !errors.Is(err, placement.ErrNoRoom) {
		t.Errorf("a device that is too small without experts: error %v", err)
	}
}

// A rank of two needs less memory than a device that runs alone. Its largest passes are measured, too, although the
// other rank does not exist.
func TestTheMemoryOfARank(t *testing.T) {
	src, err := builtin.Source()
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dev, err := op.On(cuda.OpenDetached(cuda.H200))
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	policy, _ := PolicyOn(dev, src.Model, plan.Policy{})
	var needs []*engine.Need
	for _, ranks := range []int{1, 2} {
		n, err := Need(src, dev, kernel.Member{Ranks: ranks}, engine.Config{Policy: policy, CacheTokens: 4096,
			ContextTokens: 4096, StepTokens: 512, MaxRunning: 4})
		if err != nil {
			t.Fatal(err)
		}
		needs = append(needs, n)
	}
	if alone, rank := needs[0], needs[1]; rank.Weights >= alone.Weights || rank.Arena == 0 {
		t.Errorf("a rank needs %+v, a device alone %+v", rank, alone)
	}
}
