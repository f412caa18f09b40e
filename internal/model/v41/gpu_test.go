package v41_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"sparrow/internal/cuda/op"
	"sparrow/internal/model"
	"sparrow/internal/model/synth"
	"sparrow/internal/model/v41"
	"sparrow/internal/testkit/gpu"
	"sparrow/internal/testkit/pair"
	"sparrow/internal/testkit/rounded"
	"sparrow/internal/testkit/steps"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/kernel/ref"
	"sparrow/plan"
)

// onGPU opens a GPU, or skips the test if there is no GPU.
func onGPU(t *testing.T) *op.Device {
	t.Helper()
	gpu.Need(t)
	dev := gpu.Open(t)
	t.Cleanup(func() { dev.Close() })
	return dev
}

// released returns a checkpoint with a draft head and the data types of the release: FP8 in blocks of 32 x 32, FP4
// experts and FP8 tables.
func released(t *testing.T) string {
	t.Helper()
	c, err := synth.New("released", []byte(testmodel.V41SparkConfig), synth.Options{Seed: 2, DType: synth.FP8})
	dir := filepath.Join(t.TempDir(), "released")
	if err == nil {
		err = c.Write(t.Context(), dir, nil, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// A block has the same bits alone and in a batch, with plain launches and with a captured graph.
func TestGPUBlocksAreTheSameInCompany(t *testing.T) {
	b := steps.New(t, steps.OpenOn[*v41.Model](t, released(t), onGPU(t)), drafting)
	works := drafted(b)
	var alone [][]float32
	for _, w := range works {
		alone = append(alone, blocks(b, w)...)
	}
	for range 4 { // the pass is captured, and then the graph is replayed
		b.SameBits("alone, again", blocks(b, works[0]), alone[:b.Config.Model.Block])
		b.SameBits("beside others", blocks(b, works...), alone)
	}
}

// With equal inputs, every operation agrees with the reference with the same rounding. The passes are prompts, whole
// and in chunks, decodes and verified rows. The weights have the types of the release or plain types.
func TestGPUOperationsAgreeWithTheReference(t *testing.T) {
	for name, dir := range map[string]string{"released": released(t), "plain": testmodel.V41Spark(t)} {
		t.Run(name, func(t *testing.T) {
			dev := onGPU(t)
			found := pair.Differences{}
			var both *pair.Device
			both = pair.On(dev, rounded.On(&ref.Device{Rounded: true}, dev.Hardware()), func(c pair.Call) error {
				if err := errors.Join(c.First(), c.Second()); err != nil {
					return err
				}
				return both.Settle(c, found)
			})
			b := steps.New(t, steps.OpenOn[*v41.Model](t, dir, both), drafting)
			b.Chunks(b.Sequence(1, 300), 0)
			s := b.Sequence(2, 200)
			b.Chunks(&steps.Sequence{Tokens: s.Tokens[:150], Pages: s.Pages, State: s.State}, 61)
			b.Decode(s, 9)
			b.Step(s.Work(plan.ModeVerify, 4))
			drafted(b)
			agree(t, found)
		})
	}
}

// agree checks that the differences between the GPU and the reference are within bounds.
func agree(t *testing.T, found pair.Differences) {
	t.Helper()
	var text strings.Builder
	found.Print(&text)
	t.Log(text.String())
	for name, d := range found {
		share := float64(d.Unequal) / float64(max(d.Elements, 1))
		switch {
		case name == "IndexQueryArgs.Q": // the contract allows this buffer to be overwritten
		case d.DType == kernel.I32:
			if d.Unequal > 0 {
				t.Errorf("%s: %d of %d integers differ", name, d.Unequal, d.Elements)
			}
		case d.DType == kernel.U8 || d.DType == kernel.E4M3:
			if share > 0.01 {
				t.Errorf("%s: %.2f %% of the codes differ", name, 100*share)
			}
		case name == "IndexQueryArgs.Out":
			if share > 0.01 { // neighbouring codes differ by up to half of their value
				t.Errorf("%s: %.2f %% of the values differ", name, 100*share)
			}
		case name == "ExpertArgs.Out":
			if d.Worst > 0.03 || d.Noise() > 0.002 {
				t.Errorf("%s differs by %.2f %% of its largest value, noise %.2e", name, 100*d.Worst, d.Noise())
			}
		case d.Worst > 0.01:
			t.Errorf("%s differs by %.2f %% of its largest value", name, 100*d.Worst)
		}
	}
}

// gpuPolicies lists the policies that run on a GPU.
var gpuPolicies = []plan.Policy{{KV: "fp8"}, {KV: "fp8", Deterministic: true}}

func TestGPUChunkedEqualsWhole(t *testing.T) {
	eachOf(t, steps.OpenOn[*v41.Model](t, released(t), onGPU(t)), gpuPolicies, chunkedEqualsWhole)
}

func TestGPUBatchedEqualsAlone(t *testing.T) {
	eachOf(t, steps.OpenOn[*v41.Model](t, released(t), onGPU(t)), gpuPolicies, batchedEqualsAlone)
}

func TestGPURestoredEqualsComputed(t *testing.T) {
	eachOf(t, steps.OpenOn[*v41.Model](t, released(t), onGPU(t)), gpuPolicies, restoredEqualsComputed)
}

func TestGPURollbackEqualsNoDraft(t *testing.T) {
	rollbackEqualsNoDraft(t, steps.OpenOn[*v41.Model](t, released(t), onGPU(t)))
}

// Decodes run from a graph that is captured once and give the same bits as plain launches.
func TestGPUGraphs(t *testing.T) {
	m := steps.OpenOn[*v41.Model](t, released(t), onGPU(t))
	const prompt, decodes = 100, 100
	var want [][]float32
	for _, graphs := range []int64{-1, 0} {
		hw, err := model.Hardware(m.Device())
		if err != nil {
			t.Fatal(err)
		}
		cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: "fp8"})
		if err != nil {
			t.Fatal(err)
		}
		limits := steps.Limits
		limits.GraphBytes = graphs
		b := steps.Of(t, m, cfg, limits)
		s := b.Sequence(1, prompt+decodes)
		b.Step(s.Work(plan.ModeExtend, prompt))
		got := b.Decode(s, decodes)
		if graphs < 0 {
			want = got
			continue
		}
		b.SameBits("decodes from a graph", got, want)
		if g := b.Runner.Graphs(); g.Captured > 2 || g.Replayed < decodes-10 || g.Failed > 0 {
			t.Errorf("%d passes were captured, %d of %d ran from a graph, %d captures failed: %v", g.Captured,
				g.Replayed, decodes, g.Failed, g.Failure)
		}
	}
}
