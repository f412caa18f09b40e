package estimate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"sparrow/internal/cost"
	"sparrow/internal/cuda/op"
	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/internal/model/family"
	"sparrow/internal/model/placement"
	"sparrow/internal/model/synth"
	"sparrow/internal/model/usage"
	"sparrow/internal/step"
	"sparrow/internal/testkit/testflag"
	"sparrow/kernel/cuda"
	"sparrow/plan"
)

// question returns the inputs of an estimate for a released model.
func question(t *testing.T, preset, hw string) *Question {
	t.Helper()
	text, err := synth.PresetConfig(preset)
	if err != nil {
		t.Fatal(err)
	}
	d, err := config.Describe(preset, text)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ParseMachine(hw)
	if err != nil {
		t.Fatal(err)
	}
	return &Question{Name: preset, Model: d, Format: releasedFormat(d), Machine: m, Asked: hw}
}

func fit(t *testing.T, preset, hw string) *Fit {
	t.Helper()
	f, err := question(t, preset, hw).Fit()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// DeepSeek-V4-Flash fits on an H200 whose host has 128 GiB. About 87 % of the experts are on the card. For decodes the
// CPU computes the other experts, and for prompts they are streamed.
func TestFlashOnOneCard(t *testing.T) {
	f := fit(t, "deepseek-v4-flash", "h200,128G")
	share := float64(f.Experts.Resident) / float64(f.Experts.Experts)
	t.Logf("%.1f %% resident", 100*share)
	if share < 0.84 || share > 0.90 {
		t.Errorf("%.3f of the experts are resident, want about 0.87", share)
	}
	if f.Experts.Decode != placement.Computed || f.Experts.Prefill != placement.Fetched {
		t.Errorf("decode %v, prefill %v", f.Experts.Decode, f.Experts.Prefill)
	}
	for i, parts := range [][]Part{f.Device, f.Host} {
		sum := int64(0)
		for _, p := range parts {
			sum += p.Bytes
		}
		if sum > f.Memory[i] {
			t.Errorf("memory %d: %d bytes of %d", i, sum, f.Memory[i])
		}
	}
	var text bytes.Buffer
	if err := f.Print(&text); err != nil {
		t.Fatal(err)
	}
	t.Log(text.String())
	for _, part := range []string{"This is an estimate", "weights other than experts", "decode, batch 1:",
		"decode, batch 32:", "a prompt of 8192 tokens", "experts of the host", "tokens/s"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("no %q in\n%s", part, text.String())
		}
	}
	// The model is not faster than with all experts on a card of 200 GiB; copies for prompts may be hidden behind other
	// work.
	whole := fit(t, "deepseek-v4-flash", "h200,memory=200G")
	for i, s := range f.Speeds {
		if w := whole.Speeds[i]; s.Tokens > w.Tokens || s.Tokens < w.Tokens/20 {
			t.Errorf("%s: %.0f tokens/s, %.0f with all experts on the card", s.What, s.Tokens, w.Tokens)
		}
	}
}

// A machine with the least memories of an answer is accepted, and one with 1 % less is refused with these memories.
func TestLeastMemoryIsAccepted(t *testing.T) {
	for _, c := range []struct{ model, gpus, host string }{
		{"deepseek-v4-flash", "h200", "128G"}, {"deepseek-v3.2", "h200", "2T"}, {"deepseek-v3.2", "4xh200", "2T"},
		{"deepseek-v4-flash", "rtx4090", "256G"}, {"deepseek-v4.1-flash", "h200", "512G"},
		{"glm-4.7-flash", "h200", "128G"}, {"v3-tiny", "h200", "128G"},
	} {
		l := fit(t, c.model, c.gpus+","+c.host).Least
		gib := func(n int64, share float64) string { return fmt.Sprintf("%fG", share*float64(n)/(1<<30)+1e-6) }
		for _, x := range []struct {
			what, enough, little string
			resident             string // share of experts on the device: some, all or none
		}{
			{"host", c.gpus + "," + gib(l.Host, 1), c.gpus + "," + gib(l.Host, 0.99), "some"},
			{"device", c.gpus + "," + gib(l.DeviceHost, 1) + ",memory=" + gib(l.Device, 1),
				c.gpus + "," + gib(l.DeviceHost, 1) + ",memory=" + gib(l.Device, 0.99), "none"},
			{"whole", c.gpus + "," + gib(l.Host, 1) + ",memory=" + gib(l.Whole, 1), "", "all"},
		} {
			f, err := question(t, c.model, x.enough).Fit()
			if err != nil {
				t.Errorf("%s of %s: %v", x.what, c.model, err)
				continue
			}
			if e := f.Experts; x.resident == "all" && e.Resident < e.Experts ||
				x.resident == "none" && e.Resident > 0 && l.Device < l.Whole {
				t.Errorf("%s of %s: %d of %d experts are resident, want %s", x.what, c.model, e.Resident, e.Experts,
					x.resident)
			}
			if x.little == "" || l.Whole <= f.Memory[0] && x.what == "host" { // the host holds nothing
				continue
			}
			_, err = question(t, c.model, x.little).Fit()
			want := upGiB(l.Host)
			if x.what == "device" {
				want = upGiB(l.Device)
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s of %s: %s is not refused with %s: %v", x.what, c.model, x.little, want, err)
			}
		}
	}
}

// For DeepSeek-V4.1-Flash on one H200 and on eight, the n-gram tables take 189 GiB of host memory, next to the experts
// that the cards do not hold. The estimate has memory but no speeds, because the kernels were not measured one by one.
func TestNewestFlash(t *testing.T) {
	for hw, share := range map[string]float64{"h200,512G": 0.43, "4xh200,256G": 1} {
		f := fit(t, "deepseek-v4.1-flash", hw)
		got := float64(f.Experts.Resident) / float64(f.Experts.Experts)
		t.Logf("%s: %.1f %% resident", hw, 100*got)
		if math.Abs(got-share) > 0.03 || len(f.Speeds) > 0 {
			t.Errorf("%s: %.3f of the experts are resident, want about %.2f; %d speeds, want none", hw, got, share,
				len(f.Speeds))
		}
		for i, parts := range [][]Part{f.Device, f.Host} {
			sum := int64(0)
			for _, p := range parts {
				sum += p.Bytes
			}
			if sum > f.Memory[i] {
				t.Errorf("%s: memory %d: %d bytes of %d", hw, i, sum, f.Memory[i])
			}
		}
		var text bytes.Buffer
		if err := f.Print(&text); err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"memory of the host", "n-gram tables 188.83 GiB", "v41-eight"} {
			if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), part) {
				t.Errorf("no %q in\n%s", part, text.String())
			}
		}
	}
	for hw, want := range map[string]string{
		"h200":      `such as "h200,345G"`,
		"h200,192G": "the n-gram tables take",
		"h200,344G": `such as "h200,345G"`,
		"h200,256G": "the experts do not fit", // host memory for experts is missing next to the tables
	} {
		_, err := question(t, "deepseek-v4.1-flash", hw).Fit()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", hw, err, want)
		}
	}
	hw, err := plan.HardwareFor("h200")
	if err != nil {
		t.Fatal(err)
	}
	facts, err := family.Facts(question(t, "deepseek-v4.1-flash", "h200").Model)
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, facts, plan.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	b := plan.NewBatch(plan.ModeDecode, plan.DecodeRequest(100))
	if _, err := Of(question(t, "deepseek-v4.1-flash", "h200").Model, &cfg, &b, 1); err == nil ||
		!strings.Contains(err.Error(), "the times of deepseek_v41 on GPUs are not estimated") {
		t.Errorf("times: %v", err)
	}
}

// nine returns nine layers of DeepSeek-V4-Flash: 2 attend to the window alone, 4 have an indexer, and 3 have groups of
// 128.
func nine(t *testing.T) config.Description {
	t.Helper()
	text, err := synth.PresetConfig("deepseek-v4-flash")
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(text, &keys); err != nil {
		t.Fatal(err)
	}
	keys["num_hidden_layers"], keys["num_nextn_predict_layers"] = 9, 0
	keys["compress_ratios"] = []int{0, 0, 4, 128, 4, 128, 4, 128, 4}
	if text, err = json.Marshal(keys); err != nil {
		t.Fatal(err)
	}
	d, err := config.Describe("nine layers", text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Estimates of nine layers of DeepSeek-V4-Flash, with all experts on the card, are within 15 % of the steps in
// docs/benchmarks/h200.md, "DeepSeek-V4-Pro's width".
func TestNineLayersWithin15PercentOfMeasuredSteps(t *testing.T) {
	text, err := os.ReadFile("../../../docs/benchmarks/h200.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"1.95 / 4.76 / 9.44 / 11.76 ms", "92,395 tokens/s"} {
		if !strings.Contains(string(text), part) {
			t.Errorf("the document does not say %q", part)
		}
	}
	d := nine(t)
	facts, err := family.Facts(d)
	if err != nil {
		t.Fatal(err)
	}
	hw, err := plan.HardwareFor("sm90")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, facts, plan.Policy{KV: "fp8"})
	if err != nil {
		t.Fatal(err)
	}
	machine, err := ParseMachine("h200")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		batch  string
		millis float64
	}{{decodes(1, 8192), 1.95}, {decodes(16, 8192), 4.76}, {decodes(64, 8192), 9.44}, {decodes(128, 8192), 11.76},
		{"extend:8192+0", 8192 / 92.395}} {
		b, err := plan.ParseBatch(c.batch)
		if err != nil {
			t.Fatal(err)
		}
		e := estimate(d, &cfg, &b, &machine, nil)
		share := e.Millis/c.millis - 1
		t.Logf("%s: %.2f ms, measured %.2f, %+.1f %%", c.batch, e.Millis, c.millis, 100*share)
		if math.Abs(share) > 0.15 {
			t.Errorf("%s: an estimate of %.2f ms for a step that takes %.2f", c.batch, e.Millis, c.millis)
		}
	}
}

// The measured steps in docs/benchmarks/record-h200.md, "DeepSeek-V4-Flash at full size", used older kernels for FP4
// experts. Estimates are faster than these steps, by less than the difference between the kernels.
func TestFlashIsFasterThanItsOldSteps(t *testing.T) {
	text, err := os.ReadFile("../../../docs/benchmarks/record-h200.md")
	if err != nil {
		t.Fatal(err)
	}
	f := fit(t, "deepseek-v4-flash", "h200,128G")
	for i, c := range []struct {
		row      string
		measured float64
	}{{"batch 1 | 18.1 | 18.4 | 55,", 55}, {"batch 32 | 145.6 | 176.0 | 220,", 220},
		{"a prompt of 8192 tokens in one step | 629.6 | 631.1 | 13,010,", 13010}} {
		if !strings.Contains(string(text), c.row) {
			t.Errorf("the document has no row %q", c.row)
		}
		s := f.Speeds[i]
		share := s.Tokens / c.measured
		t.Logf("%s: %.0f tokens/s, measured %.0f, %.2f of it", s.What, s.Tokens, c.measured, share)
		if share < 1 || share > 1.6 {
			t.Errorf("%s: an estimate of %.0f tokens/s where %.0f were measured", s.What, s.Tokens, c.measured)
		}
	}
}

// An estimate is slower with less memory on the card, with fewer cores, or with a slower bus.
func TestLessIsSlower(t *testing.T) {
	full := fit(t, "deepseek-v4-flash", "h200,256G")
	for _, hw := range []string{"h200,256G,memory=80G", "h200,256G,cores=4", "h200,256G,memory=80G,bus=20G",
		"h200,256G,read=2T"} {
		f := fit(t, "deepseek-v4-flash", hw)
		slower := 0
		for i, s := range f.Speeds {
			// With few cores, decodes use the bus, which takes the same time to within 0.5 %.
			if s.Tokens > full.Speeds[i].Tokens*1.005 {
				t.Errorf("%s: %s %.0f tokens/s, with more %.0f", hw, s.What, s.Tokens, full.Speeds[i].Tokens)
			}
			if s.Tokens < 0.99*full.Speeds[i].Tokens {
				slower++
			}
		}
		if slower == 0 {
			t.Errorf("%s is as fast as all of the machine", hw)
		}
	}
	q := question(t, "deepseek-v4-flash", "h200,256G")
	q.DeviceBytes = 100 << 30
	bounded, err := q.Fit()
	if err != nil || bounded.Experts.Resident >= full.Experts.Resident || bounded.Memory[0] != 100<<30 {
		t.Errorf("with --gpu-memory: %+v, %v", bounded, err)
	}
}

// Evenly chosen experts are the worst case. If few experts get most choices, these are on the card and decodes are
// faster.
func TestUseHelps(t *testing.T) {
	even := fit(t, "deepseek-v4-flash", "h200,128G")
	q := question(t, "deepseek-v4-flash", "h200,128G")
	u, err := usage.For(q.Model)
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
	q.Usage = u
	f, err := q.Fit()
	if err != nil {
		t.Fatal(err)
	}
	if f.Experts.Resident != even.Experts.Resident || f.Experts.Covered < 0.95 ||
		f.Speeds[0].Tokens < 1.1*even.Speeds[0].Tokens {
		t.Errorf("covered %.3f, %.0f tokens/s; %.0f with even use", f.Experts.Covered, f.Speeds[0].Tokens,
			even.Speeds[0].Tokens)
	}
	q.Usage = usage.New("deepseek_v4", 3, 4, 2)
	if _, err := q.Fit(); err == nil || !strings.Contains(err.Error(), "saved for this model") {
		t.Errorf("the usage of another model: %v", err)
	}
}

// A model that is larger than the machine is refused with the missing memory. Several cards can hold it.
func TestWhatIsMissing(t *testing.T) {
	for _, c := range []struct{ preset, hw, want string }{
		{"deepseek-v3.2", "h200,128G", "are missing"},
		{"deepseek-v3.2", "h200,memory=20G,1T", "more device memory than there is"},
		{"glm-5", "h200", "the host has 0 B for them"},
	} {
		_, err := question(t, c.preset, c.hw).Fit()
		if !errors.Is(err, placement.ErrNoRoom) || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "weights other than experts") {
			t.Errorf("%s on %s: %v, want %q", c.preset, c.hw, err, c.want)
		}
	}
	for _, preset := range []string{"deepseek-v3.2", "glm-5", "deepseek-v4-flash", "deepseek-v4-pro"} {
		machines := []string{"h200,1500G", "8xh200,128G"}
		if preset == "deepseek-v4-pro" { // its 1.6 trillion parameters do not fit into 128 GiB
			machines = []string{"h200,1500G", "8xh200,1T"}
		}
		for _, hw := range machines {
			f := fit(t, preset, hw)
			if len(f.Speeds) != 3 {
				t.Fatalf("%s on %s: %+v", preset, hw, f.Speeds)
			}
			for _, s := range f.Speeds {
				t.Logf("%s on %s: %s %.0f tokens/s", preset, hw, s.What, s.Tokens)
				if !(s.Tokens > 0) || math.IsInf(s.Tokens, 0) {
					t.Errorf("%s on %s: %s: %v tokens/s", preset, hw, s.What, s.Tokens)
				}
			}
		}
	}
}

// A model whose layers a GPU refuses to load is not reported as fitting.
func TestExpertsBeyondAGPUAreRefused(t *testing.T) {
	q := question(t, "deepseek-v4-pro", "h200,1500G")
	q.Model.(*config.V4).FFN.Experts = 520
	_, err := q.Fit()
	if err == nil || !strings.Contains(err.Error(), "520 experts") || !strings.Contains(err.Error(), "--tp") {
		t.Errorf("%v", err)
	}
}

func TestParseMachine(t *testing.T) {
	m, err := ParseMachine("4xH200, 512G, cores=32, stream=300G, bus=60G, read=2T, memory=80G")
	if err != nil || m.GPUs != 4 || m.CPU.MemoryBytes != 512<<30 || m.CPU.Cores != 32 || m.CPU.Stream != 300e3 ||
		m.Bus.Rate != 60e3 || m.GPU.Weights != 2e6 || m.GPU.MemoryBytes != 80<<30 ||
		m.GPU.Experts != cost.H200().GPU.Experts/2 {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := ParseMachine("h200,1.5T"); err != nil || m.CPU.MemoryBytes != 1500*(1<<30) {
		t.Errorf("%+v, %v", m.CPU, err)
	}
	if m, err := ParseMachine("cpu,64G,stream=90G"); err != nil || m.GPUs != 0 || m.CPU.MemoryBytes != 64<<30 ||
		m.CPU.Stream != 90e3 {
		t.Errorf("%+v, %v", m, err)
	}
	for text, want := range map[string]string{
		"2xcpu": "2 machines without a GPU", "cpu,bus=25G": "bus= applies to a machine with a GPU",
		"": `GPU "" is unknown`, "mi355x,128G": `GPU "mi355x" is unknown`, "0xh200": "number of GPUs",
		"99xh200":  "number of GPUs",
		"h200,128": "no unit; want G or T", "h200,-3G": "not an amount", "h200,NaNG": "not an amount",
		"h200,1e30T":    "not an amount",
		"h200,cores=0":  "number of cores",
		"h200,wings=3G": `the figure "wings" is unknown`,
		"h200,foo=3":    `the figure "foo" is unknown`, "h200,": "no unit", "a10,64G": `GPU "a10" is unknown;`,
		"2x4090,64G": `GPU "4090" is unknown, did you mean rtx4090?`,
	} {
		if _, err := ParseMachine(text); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "known GPUs: h200") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// The estimated memory of weights other than experts and of the largest step equals what the operations of a GPU
// allocate. The test measures it on a device that only counts.
func TestMemoryIsThatOfTheDevice(t *testing.T) {
	presets := []string{"v4-slice", "v32-slice", "v41-eight"}
	if *testflag.Long {
		presets = append(presets, "deepseek-v4-flash", "glm-5")
	}
	for _, preset := range presets {
		text, err := synth.PresetConfig(preset)
		if err != nil {
			t.Fatal(err)
		}
		none := 0
		c, err := synth.New(preset, text, synth.Options{DType: synth.FP8, NextN: &none})
		if err != nil {
			t.Fatal(err)
		}
		src, err := c.Dummy(preset)
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		gpu, err := op.On(cuda.OpenDetached(cuda.H200))
		if err != nil {
			t.Fatal(err)
		}
		empty, err := gpu.DryRun()
		if err != nil {
			t.Fatal(err)
		}
		m, err := src.Load(empty, nil)
		if err != nil {
			t.Fatal(err)
		}
		hw, err := model.Hardware(m.Device())
		if err != nil {
			t.Fatal(err)
		}
		cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: "fp8"})
		if err != nil {
			t.Fatal(err)
		}
		arena, err := step.Measure(m, cfg, step.Limits{Rows: Chunk, Requests: Sequences, Context: Tokens})
		if err != nil {
			t.Fatal(err)
		}
		e, heads := expertsOf(src.Model), m.Facts().Heads
		format := releasedFormat(src.Model)
		weights := empty.(*op.Device).MemoryUse().Weights
		want := int64(bytesOf(format, e.values()))*int64(e.count()) + restBytes(src.Model, heads, 1)
		if share := float64(want) / float64(weights); math.Abs(share-1) > 0.02 {
			t.Errorf("%s: weights of %d bytes are estimated as %d", preset, weights, want)
		}
		step := rowBytes(src.Model, heads) * Chunk
		t.Logf("%s: weights %.3f of the device's, largest step %.2f GB of %.2f", preset, float64(want)/float64(weights),
			step/1e9, float64(arena)/1e9)
		if share := step / float64(arena); share < 0.9 || share > 1.3 {
			t.Errorf("%s: the largest step takes %d bytes, estimated as %.0f", preset, arena, step)
		}
		gpu.Close()
	}
}

// Estimates for GPUs that plans know by name use published figures and the kernels of those GPUs, for weights in every
// format. Thor and GB10 share their memory with the host and are not estimated.
func TestPublishedGPUs(t *testing.T) {
	for arch := plan.SM80; arch <= plan.SM121; arch++ {
		for _, name := range plan.DevicesOf(arch) {
			m, err := ParseMachine("2x" + name + ",200G")
			if name == "thor" || name == "gb10" || name == "dgxspark" {
				if err == nil {
					t.Errorf("%s has memory of its own: %+v", name, m)
				}
				continue
			}
			if err != nil || m.GPUs != 2 || m.Arch != arch || m.Portable != (arch != plan.SM90) ||
				(m.Stated == "") != (name == "h200") {
				t.Errorf("%s: %+v, %v", name, m, err)
			}
		}
	}
	f := fit(t, "deepseek-v4-flash", "rtx4090,140G")
	if f.Memory[0] != 24e9 || f.Speeds[0].Tokens < 3 || f.Speeds[0].Tokens > 10 ||
		!strings.Contains(f.Stated, "1008 GB/s") || !strings.Contains(f.Stated, "nothing was measured") {
		t.Errorf("%d bytes, %.1f tokens/s, %q", f.Memory[0], f.Speeds[0].Tokens, f.Stated)
	}
	slow := fit(t, "deepseek-v4-flash", "h100,200G").Speeds[0].Tokens
	if fast := fit(t, "deepseek-v4-flash", "h200,200G").Speeds[0].Tokens; slow >= fast {
		t.Errorf("an H100 with 80 GB makes %.1f tokens/s, an H200 %.1f", slow, fast)
	}
	if f := fit(t, "glm-4.7-flash", "rtx4090,64G"); f.Speeds[0].Tokens < 1 {
		t.Errorf("a model without an indexer makes %.1f tokens/s", f.Speeds[0].Tokens)
	}
	for _, name := range []string{"nvidia-deepseek-v4-flash-nvfp4", "pastapaul-deepseek-v4-flash-w4a16-fp8",
		"deepseek-v4-flash", "deepseek-v4-flash-base"} {
		src, _, err := synth.Described(name, release(t, name))
		if err != nil {
			t.Fatal(err)
		}
		q := question(t, "deepseek-v4-flash", "rtx4090,400G")
		q.Model, q.Format, q.Weights = src.Model, src.ExpertFormat(), WeightsOf(src)
		if _, err := q.Fit(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
