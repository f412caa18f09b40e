package v4_test

import (
	"testing"

	"sparrow/internal/model/config"
	"sparrow/internal/model/synth"
	"sparrow/internal/model/v4"
	"sparrow/internal/testkit/steps"
	"sparrow/internal/testmodel"
	"sparrow/layout"
	"sparrow/plan"
)

// The bytes per token of context of the released models, including page padding, are as in the v4 spec, 3.6: 3899.25
// for Flash and 5586.75 for Pro. With four-bit keys each layer that has keys takes 16 bytes less.
func TestSizesOfTheReleasedModels(t *testing.T) {
	for _, c := range []struct {
		preset   string
		perToken float64
		index4   int // number of layers with ratio 4
		state    int64
	}{
		{"deepseek-v4-flash", 3899.25, 21, 21*16*(8192+2048) + 20*256*4096},
		{"deepseek-v4-pro", 5586.75, 30, 30*16*(8192+2048) + 31*256*4096},
	} {
		text, err := synth.PresetConfig(c.preset)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := config.ParseV4(c.preset, text)
		if err != nil {
			t.Fatal(err)
		}
		got := v4.SizesOf(cfg, layout.V4Packed{}, layout.IndexFP8{}, 256)
		if want := int64(c.perToken * 256); got.Page != want || got.State != c.state {
			t.Errorf("%s: a page of %d bytes and a state of %d, want %d and %d", c.preset, got.Page, got.State, want,
				c.state)
		}
		if window := int64(cfg.Layers*149760 + c.index4*4*(8192+2048)); got.Window != window {
			t.Errorf("%s: a window page of %d bytes, want %d", c.preset, got.Window, window)
		}
		fp4 := v4.SizesOf(cfg, layout.V4Packed{}, layout.IndexFP4{}, 256)
		if d := got.Page - fp4.Page; d != int64(c.index4*64*64) {
			t.Errorf("%s: four-bit keys save %d bytes a page", c.preset, d)
		}
	}
}

// The cache and the states have the computed sizes: with each layout, with a drafting block, and with drafting stages.
func TestMemoryIsAsComputed(t *testing.T) {
	for _, p := range []plan.Policy{{KV: "fp8"}, {KV: "fp8", FP4Index: true}, {KV: "f32"}} {
		steps.Memory[*v4.Model](t, oracle, p, 0)
	}
	steps.Memory[*v4.Model](t, testmodel.V4Draft(t), plan.Policy{KV: "fp8"}, 3)
	steps.Memory[*v4.Model](t, testmodel.V4Spark(t), plan.Policy{KV: "fp8"}, 6)
}

func TestMain(m *testing.M) { testmodel.Run(m) }
