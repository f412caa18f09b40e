package v4_test

import (
	"testing"

	"sparrow/internal/model/config"
	"sparrow/internal/model/synth"
	"sparrow/internal/model/v4"
	"sparrow/internal/testkit/steps"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
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

// The computed sizes equal the sizes that a loaded model allocates.
func TestSizesAreWhatIsAllocated(t *testing.T) {
	m := steps.Open[*v4.Model](t, oracle, "cpu")
	for _, p := range []plan.Policy{{KV: "fp8"}, {KV: "fp8", FP4Index: true}, {KV: "f32"}} {
		b := steps.New(t, m, p)
		if err := m.AllocateWindows(&b.Config, 5, 3); err != nil {
			t.Fatal(err)
		}
		bytes := 0
		for _, layer := range m.Pools() {
			for _, pool := range layer {
				bytes += pool.Mem.Rows * pool.Mem.Cols
			}
		}
		tails := 3 * 2 * 4 * (8192 + 2048) // two layers have ratio 4
		page, window := m.PageBytes(&b.Config)-m.WindowBytes(&b.Config), m.WindowBytes(&b.Config)
		if want := int(5*page + 3*window); bytes+tails != want {
			t.Errorf("%+v: %d bytes are allocated, %d computed", p, bytes+tails, want)
		}
	}
}

// weighed is a device that counts the memory that is allocated.
type weighed struct {
	kernel.Device
	bytes int64
}

func (w *weighed) Alloc(n int64) (kernel.Buffer, error) {
	w.bytes += n
	return w.Device.Alloc(n)
}

func (w *weighed) Free(b kernel.Buffer) {
	w.bytes -= b.Len()
	w.Device.Free(b)
}

func TestMain(m *testing.M) { testmodel.Run(m) }

// A state has the computed number of bytes, including the ring of the drafting block if that is used.
func TestStatesAreAsLargeAsComputed(t *testing.T) {
	for _, drafts := range []int{0, 3} {
		dev := &weighed{Device: steps.Device(t, "cpu")}
		m := steps.OpenOn[*v4.Model](t, testmodel.V4Draft(t), dev)
		p := plan.Policy{KV: "fp8", Speculation: plan.Speculation{Tokens: drafts}}
		cfg := steps.New(t, m, p).Config
		if err := m.Reserve(20); err != nil {
			t.Fatal(err)
		}
		before := dev.bytes
		if err := m.Reserve(36); err != nil {
			t.Fatal(err)
		}
		if got, want := dev.bytes-before, 16*m.StateBytes(&cfg); got != want {
			t.Errorf("%d drafts: 16 states take %d bytes, computed %d", drafts, got, want)
		}
	}
}
