package estimate

import (
	"fmt"
	"testing"

	"sparrow/internal/model/config"
	"sparrow/internal/model/family"
	"sparrow/internal/model/synth"
	"sparrow/internal/model/usage"
	"sparrow/internal/testkit/table"
	"sparrow/plan"
)

// Each stage of a step, each part of memory and each reason of a placement has the figures of the table, so that a
// missing or wrong term of a formula changes a line. Figures have five digits, so that the order of sums does not
// matter.
func TestTableOfEstimates(t *testing.T) {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	stagesOf := func(e *Estimate) {
		for _, s := range e.Stages {
			add("    %s: %.5g us", s.Name, s.Micros)
		}
	}
	for _, c := range []struct {
		preset, batch string
		gpus          int
		how           plan.Division
	}{
		{"deepseek-v3.2", "decode:3x5000", 1, plan.ByHeads},
		{"deepseek-v3.2", "decode:40x70000", 8, plan.ByHeads},
		{"deepseek-v3.2", "mixed:extend:700+100/decode:9x3000", 4, plan.ByRequests},
		{"deepseek-v3.2", "extend:3000+1000", 8, plan.ByHeads},
		{"deepseek-v3.2", "extend:100+9000", 1, plan.ByHeads},
		{"glm-5", "decode:17x33000", 8, plan.ByHeads},
		{"glm-5", "extend:5000", 2, plan.ByHeads},
		{"deepseek-v3", "decode:5x9000", 8, plan.ByHeads},
		{"deepseek-v3", "extend:7000+4000", 8, plan.ByHeads},
		{"deepseek-v4-flash", "decode:33x20000", 1, plan.ByHeads},
		{"deepseek-v4-flash", "extend:4000+3000", 2, plan.ByHeads},
		{"deepseek-v4-pro", "decode:2x200000", 8, plan.ByHeads},
		{"deepseek-v4-pro", "mixed:extend:600/decode:7x300", 4, plan.ByRequests},
		{"glm-5.2", "verify:3:3x20000", 8, plan.ByHeads},
		{"deepseek-v4-flash-0731", "decode:3x2000", 1, plan.ByHeads},
		{"kimi-k2", "decode:3x2000", 8, plan.ByHeads},
		{"glm-4.7-flash", "decode:3x2000", 1, plan.ByHeads},
		{"glm-5.3-flash", "decode:6x12000", 1, plan.ByHeads},
		{"glm-5.3-flash", "extend:3000+500", 1, plan.ByHeads},
		{"deepseek-v4.1-flash", "decode:33x20000", 1, plan.ByHeads},
		{"deepseek-v4.1-flash", "extend:4000+30000", 2, plan.ByHeads},
	} {
		name := fmt.Sprintf("%s %s on %d GPUs by %v", c.preset, c.batch, c.gpus, c.how)
		e, err := stepOf(t, c.preset, c.batch, c.gpus, c.how)
		if err != nil {
			add("%s: refused %s", name, table.Facts(err.Error()))
			continue
		}
		add("%s: %d rows, %.5g ms, %d bytes, warning %s", name, e.Rows, e.Millis, e.WeightBytes, table.Facts(e.Warning))
		stagesOf(e)
	}
	for _, name := range synth.PresetNames() {
		d := described(t, name)
		add("%s: %d bytes of tables, %d of weights beside experts on one GPU, %d on each of two with 8 heads", name,
			tableBytes(d), restBytes(d, 64, 1), restBytes(d, 8, 2))
	}
	for _, c := range []struct {
		preset, hw string
		memory     int64
		used       bool
	}{
		{"deepseek-v4-flash", "h200,128G", 0, false}, {"deepseek-v4-flash", "h200,128G", 100 << 30, true},
		{"deepseek-v4-flash", "h200,60G", 0, false},
		{"deepseek-v4-flash", "2xrtxpro6000,256G", 0, false},
		{"deepseek-v4-flash", "a100,512G,cores=64,read=1.9T", 0, false}, {"deepseek-v3.2", "8xh200,1T", 0, false},
		{"glm-5", "8xh200,2T,bus=25G,stream=90G", 0, false}, {"deepseek-v4-pro", "8xh200,1T", 0, false},
		{"glm-5.3-flash", "h200,128G", 0, true}, {"deepseek-v4.1-flash", "h200,512G", 0, false},
		{"deepseek-v4.1-flash", "2xh200,1T", 0, true},
		{"deepseek-v3.2", "h200,64G", 0, false},
	} {
		q := question(t, c.preset, c.hw)
		q.DeviceBytes = c.memory
		if c.used {
			q.Usage = skewed(t, q.Model)
		}
		name := fmt.Sprintf("%s on %s, %d, used %v", c.preset, c.hw, c.memory, c.used)
		f, err := q.Fit()
		if err != nil {
			add("%s: refused %s", name, table.Facts(err.Error()))
			continue
		}
		add("%s: memory %d, %d experts here, beside %.5g", name, f.Memory, f.Experts.Resident, f.Experts.Beside)
		for _, list := range [][]Part{f.Device, f.Host} {
			for _, p := range list {
				add("  %s: %d, %s", p.Name, p.Bytes, table.Facts(p.Note))
			}
		}
		for _, why := range f.Experts.Reasons {
			add("  because %s", table.Facts(why))
		}
		for _, s := range f.Speeds {
			add("  %s: %.5g tokens/s", s.What, s.Tokens)
			stagesOf(s.Step)
		}
	}
	table.Check(t, "estimates.txt", lines)
}

// described returns the description of a preset.
func described(t *testing.T, preset string) config.Description {
	t.Helper()
	text, err := synth.PresetConfig(preset)
	if err != nil {
		t.Fatal(err)
	}
	d, err := config.Describe(preset, text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// stepOf returns the estimate of a batch whose requests are assigned to ranks round-robin.
func stepOf(t *testing.T, preset, batch string, gpus int, how plan.Division) (*Estimate, error) {
	t.Helper()
	d := described(t, preset)
	facts, err := family.Facts(d)
	if err == nil {
		facts, err = facts.Divide(gpus, how)
	}
	if err != nil {
		return nil, err
	}
	hw, err := plan.HardwareFor("sm90")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, facts, plan.Policy{KV: "fp8"})
	if err != nil {
		return nil, err
	}
	b, err := plan.ParseBatch(batch)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.Requests {
		if facts.ByRequests() {
			b.Requests[i].Rank = i % gpus
		}
	}
	return Of(d, &cfg, &b, gpus)
}

// skewed returns an expert usage in which each expert is chosen less often than the previous one.
func skewed(t *testing.T, d config.Description) *usage.Table {
	t.Helper()
	u, err := usage.For(d)
	if err != nil {
		t.Fatal(err)
	}
	for l := range u.Counts {
		counts := make([]uint64, u.Experts)
		for e := range counts {
			counts[e] = uint64(1e6 / float64(e+1))
		}
		u.Add(l, counts)
	}
	return u
}
