package v4_test

import (
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/model/v4"
	"sparrow/internal/step"
	"sparrow/internal/testkit/placed"
	"sparrow/internal/testkit/steps"
	"sparrow/kernel"
	"sparrow/plan"
)

// openPlaced opens a checkpoint with experts in two memories.
func openPlaced(t *testing.T, dir string, dev kernel.Device, rule placed.Rule) *v4.Model {
	t.Helper()
	src, err := family.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return placed.Load(t, src, dev, rule).(*v4.Model)
}

var fp8Pages = []namedPolicy{{"584-byte pages through a workspace", plan.Policy{KV: "fp8"}}}

// With experts in two memories, a prompt has the same bits in any chunks and in any batch. Half of the FP4 experts are
// in host memory, and every pair of methods is tested.
func TestOffloadedBits(t *testing.T) {
	testChunkedEqualsWhole(t, openPlaced(t, released(t), steps.Device(t, "cpu"), placed.Half), fp8Pages)
	m := openPlaced(t, released(t), steps.Device(t, "cpu"), placed.Mixed)
	testBatchedEqualsAlone(t, m, fp8Pages)
}

// With any placement of experts, logits, drafts and caches have the bits of one device. This is tested with the
// reference checkpoint and with released data types.
func TestOffloadedEqualsOneDevice(t *testing.T) {
	for name, c := range map[string]struct {
		dir  string
		rule placed.Rule
	}{
		"oracle, half": {oracle, placed.Half}, "oracle, all": {oracle, placed.All},
		"released, all": {released(t), placed.All}, "released, mixed": {released(t), placed.Mixed},
	} {
		t.Run(name, func(t *testing.T) {
			var want [][]float32
			var bytes []byte
			for i, m := range []*v4.Model{steps.Open[*v4.Model](t, c.dir, "cpu"),
				openPlaced(t, c.dir, steps.Device(t, "cpu"), c.rule)} {
				p := plan.Policy{KV: "fp8"}
				if m.DraftHead() == nil {
					p.Speculation.Tokens = 5
				}
				b := steps.New(t, m, p)
				if m.DraftHead() == nil {
					drafted(b, b.Sequence(1, 300), 270, 131)
				}
				s := b.Sequence(2, 160)
				got := b.Chunks(&steps.Sequence{Tokens: s.Tokens[:150], Pages: s.Pages, State: s.State}, 127)
				got = append(got, b.Decode(s, 5)...)
				got = append(got, b.Step(s.Work(plan.ModeVerify, 4))...)
				if i == 0 {
					want, bytes = got, b.Bytes()
					continue
				}
				b.SameBits("experts in two memories", got, want)
				b.SameBytes("experts in two memories", b.Bytes(), bytes)
			}
		})
	}
}

func TestGPUOffloadedBits(t *testing.T) {
	dir := released(t)
	testChunkedEqualsWhole(t, openPlaced(t, dir, onGPU(t), placed.Half), fp8Pages)
	testBatchedEqualsAlone(t, openPlaced(t, dir, onGPU(t), placed.All), fp8Pages)
	testBatchedEqualsAlone(t, openPlaced(t, dir, onGPU(t), placed.Mixed), fp8Pages)
}

// Decodes with experts in two memories run from captured graphs and have the bits of plain launches. Fetched experts
// have the bits of resident experts.
func TestGPUOffloadedGraphs(t *testing.T) {
	dir := released(t)
	for _, c := range []struct {
		name  string
		plain *v4.Model
		graph *v4.Model
	}{
		{"computed", openPlaced(t, dir, onGPU(t), placed.Half), openPlaced(t, dir, onGPU(t), placed.Half)},
		{"fetched", steps.OpenOn[*v4.Model](t, dir, onGPU(t)), openPlaced(t, dir, onGPU(t), placed.HalfFetched)},
	} {
		var want [][]float32
		for i, m := range []*v4.Model{c.plain, c.graph} {
			limits := steps.Limits
			limits.GraphBytes = int64(i) - 1 // a negative value disables graphs
			b := benchWith(t, m, limits)
			s := b.Sequence(1, 150)
			got := b.Step(s.Work(plan.ModeExtend, 100))
			got = append(got, b.Decode(s, 50)...)
			if i == 0 {
				want = got
				continue
			}
			b.SameBits(c.name, got, want)
			if g := b.Runner.Graphs(); g.Replayed < 40 || g.Failed > 0 {
				t.Errorf("%s: %d of 50 passes ran from a graph, %d captures failed: %v", c.name, g.Replayed, g.Failed,
					g.Failure)
			}
		}
	}
}

// benchWith returns a bench with FP8 pages and the given limits.
func benchWith(t *testing.T, m *v4.Model, l step.Limits) *steps.Bench {
	t.Helper()
	hw, err := model.Hardware(m.Device())
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: "fp8"})
	if err != nil {
		t.Fatal(err)
	}
	return steps.Of(t, m, cfg, l)
}
