package estimate

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"sparrow/internal/cost"
	"sparrow/internal/model/config"
	"sparrow/internal/model/dsa"
	"sparrow/internal/model/synth"
	"sparrow/plan"
)

// of returns the estimate of a batch of a preset on H200s that divide attention by heads.
func of(t *testing.T, preset, batch string, gpus int) *Estimate {
	t.Helper()
	return divided(t, preset, batch, gpus, plan.ByHeads, plan.SplitUnset)
}

// divided returns the estimate of a batch for a given division of attention and split of rows. If attention is divided
// by requests, requests are assigned to ranks round-robin.
func divided(t *testing.T, preset, batch string, gpus int, how plan.Division, split plan.KeySplit) *Estimate {
	t.Helper()
	text, err := synth.PresetConfig(preset)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse(preset, text)
	if err != nil {
		t.Fatal(err)
	}
	hw, err := plan.HardwareFor("sm90")
	if err != nil {
		t.Fatal(err)
	}
	m, err := dsa.Facts(c).Divide(gpus, how)
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m, plan.Policy{KV: "fp8", Prefill: "sparse-flat", SplitKeys: split})
	if err != nil {
		t.Fatal(err)
	}
	b, err := plan.ParseBatch(batch)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b.Requests {
		if m.ByRequests() {
			b.Requests[i].Rank = i % gpus
		}
	}
	e, err := Of(c, &cfg, &b, gpus)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// decodes returns a batch of n sequences with the given number of tokens.
func decodes(n, tokens int) string { return fmt.Sprintf("decode:%dx%d", n, tokens) }

// Estimates of one GPU are within 15 % of the whole steps in docs/benchmarks/record-h200.md.
func TestWithin15PercentOfMeasuredSteps(t *testing.T) {
	check := func(what string, got, measured float64) {
		t.Helper()
		share := got/measured - 1
		t.Logf("%s: %.2f ms, measured %.2f, %+.1f %%", what, got, measured, 100*share)
		if math.Abs(share) > 0.15 {
			t.Errorf("%s: an estimate of %.2f ms for a step that takes %.2f", what, got, measured)
		}
	}
	for _, c := range []struct {
		preset           string
		batch, thousands int
		millis           float64
	}{
		{"v32-slice", 1, 8, 1.83}, {"v32-slice", 16, 8, 4.26}, {"v32-slice", 64, 8, 5.53}, {"v32-slice", 128, 8, 6.81},
		{"v32-slice", 1, 32, 1.83}, {"v32-slice", 16, 32, 4.47}, {"v32-slice", 64, 32, 5.93},
		{"v32-slice", 128, 32, 7.60}, {"v32-slice256", 1, 8, 1.84}, {"v32-slice256", 16, 8, 6.46},
		{"v32-slice256", 64, 8, 12.69}, {"v32-slice256", 128, 8, 15.60},
	} {
		check(fmt.Sprintf("%s, %d x %dk", c.preset, c.batch, c.thousands),
			of(t, c.preset, decodes(c.batch, c.thousands<<10), 1).Millis, c.millis)
	}
	for split, steps := range map[plan.KeySplit]map[int]float64{
		plan.SplitWhole: {1: 2.16, 16: 4.68, 64: 5.42, 128: 6.42},
		plan.Split256:   {1: 1.79, 16: 4.52, 64: 5.58, 128: 6.84},
	} {
		for batch, millis := range steps {
			e := divided(t, "v32-slice", decodes(batch, 8<<10), 1, plan.ByHeads, split)
			check(fmt.Sprintf("%d x 8k, rows %s", batch, split.Says()), e.Millis, millis)
		}
	}
	for _, c := range []struct {
		preset    string
		tokens    int
		perSecond float64
	}{{"v32-slice", 8192, 76500}, {"v32-slice", 32768, 64100}, {"v32-slice256", 8192, 70200},
		{"v32-slice256", 32768, 59200}} {
		sum := 0.0
		for at := 0; at < c.tokens; at += 8192 {
			sum += of(t, c.preset, fmt.Sprintf("extend:8192+%d", at), 1).Millis
		}
		check(fmt.Sprintf("%s, a prompt of %d", c.preset, c.tokens), sum, float64(c.tokens)/c.perSecond*1000)
	}
}

// The attention of decodes uses the time that was measured for the plan's split, interpolated between measured sizes.
func TestDecodesFollowTheSplit(t *testing.T) {
	list := []cost.Decode{{Rows: 2, Whole: 50, Keys512: 10}, {Rows: 4, Whole: 60, Keys512: 30}}
	for _, c := range []struct {
		split      plan.KeySplit
		rows, want float64
	}{{plan.Split512, 1, 10}, {plan.Split512, 2, 10}, {plan.Split512, 3, 20}, {plan.Split512, 4, 30},
		{plan.Split512, 8, 60}, {plan.SplitWhole, 3, 55}} {
		if got := decoded(list, c.split, c.rows); got != c.want {
			t.Errorf("%g rows, %s: %g us, want %g", c.rows, c.split.Says(), got, c.want)
		}
	}
}

// Eight GPUs divide the work: the weights fit, steps are shorter than on one GPU, and transfers over links are counted.
func TestEightGPUs(t *testing.T) {
	one, eight := of(t, "deepseek-v3.2", decodes(64, 8192), 1), of(t, "deepseek-v3.2", decodes(64, 8192), 8)
	if one.WeightBytes < 640e9 || one.WeightBytes > 740e9 || eight.WeightBytes > 120e9 || eight.WeightBytes < 80e9 {
		t.Errorf("weights of %d bytes on one GPU, %d on each of eight", one.WeightBytes, eight.WeightBytes)
	}
	if !(eight.Millis < one.Millis/3 && eight.Millis > one.Millis/8) {
		t.Errorf("%.1f ms on one GPU, %.1f on eight", one.Millis, eight.Millis)
	}
	var text bytes.Buffer
	if err := eight.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"on 8 H200", "not measured", "links", "450 GB/s", "experts"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("no %q in\n%s", part, text.String())
		}
	}
	if strings.Contains(fmt.Sprint(one.Stages), "links") {
		t.Error("one GPU has links")
	}
}

// With a division by requests, a GPU has all weights of attention and attends for its own rows. With many sequences
// attention is faster than with a division by heads. With one sequence it is as fast as on one GPU. Links transfer
// three quarters of the bytes.
func TestEightGPUsByRequests(t *testing.T) {
	stage := func(e *Estimate, name string) float64 {
		for _, s := range e.Stages {
			if s.Name == name {
				return s.Micros
			}
		}
		t.Fatalf("no stage %s in %+v", name, e.Stages)
		return 0
	}
	estimates := func(sequences int) (one, heads, requests *Estimate) {
		batch := decodes(sequences, 8192)
		return of(t, "deepseek-v3.2", batch, 1), of(t, "deepseek-v3.2", batch, 8),
			divided(t, "deepseek-v3.2", batch, 8, plan.ByRequests, plan.SplitUnset)
	}
	_, heads, requests := estimates(256)
	if a, b := stage(requests, "indexer"), stage(heads, "indexer"); !(a < b/4) {
		t.Errorf("256 sequences: an indexer of %.0f us by requests, %.0f by heads", a, b)
	}
	if a, b := stage(requests, "links"), stage(heads, "links"); !(a < b && a > b*2/3) {
		t.Errorf("256 sequences: links of %.0f us by requests, %.0f by heads", a, b)
	}
	if a, b := requests.WeightBytes, heads.WeightBytes; !(a > b+5e9 && a < b+30e9) {
		t.Errorf("weights of %d bytes on each GPU by requests, %d by heads", a, b)
	}
	one, _, requests := estimates(1)
	if a, b := stage(requests, "attention"), stage(one, "attention"); a != b {
		t.Errorf("one sequence: attention of %.0f us by requests, %.0f on one GPU", a, b)
	}
	var text bytes.Buffer
	if err := requests.Print(&text); err != nil || !strings.Contains(text.String(), "by requests (the slowest") {
		t.Errorf("%v in\n%s", err, text.String())
	}
}
