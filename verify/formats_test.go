package verify

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sparrow/internal/testkit/archive"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/ref"
	"sparrow/model/family"
	"sparrow/plan"
)

// A repacked checkpoint answers as its twin of dequantised weights: logits within 1e-4 with exact products, and the
// same greedy tokens. The matrices of attention, of dense blocks and of experts are repacked.
func TestRepackedAnswerAsTheirTwins(t *testing.T) {
	const base = "../testdata/oracle/deepseek_v32-1"
	dir := filepath.Join(archive.Unpack(t, "../testdata/oracle/formats-1.tar.gz"), "formats-1", "checkpoints")
	cases, err := ReadGolden(base)
	if err != nil {
		t.Fatal(err)
	}
	named := func(name string) *Golden {
		return &cases[slices.IndexFunc(cases, func(g Golden) bool { return g.Name == name })]
	}
	for _, name := range []string{"nvfp4-modelopt", "int4-int8-compressed", "fp8-channel-compressed"} {
		t.Run(name, func(t *testing.T) {
			repacked := filepath.Join(dir, name)
			twin := filepath.Join(repacked, "twin")
			place(t, filepath.Join(base, "model.safetensors"), filepath.Join(repacked, "base.safetensors"))
			for from, to := range map[string]string{"twin.config.json": "config.json",
				"twin.index.json": "model.safetensors.index.json", "dequantised.safetensors": "dequantised.safetensors",
				"base.safetensors": "base.safetensors"} {
				place(t, filepath.Join(repacked, from), filepath.Join(twin, to))
			}
			// As the kernels are, which take rows in eight bits.
			short := named("short")
			want, got := answer(t, twin, "cpu", short, false), answer(t, repacked, "cpu", short, false)
			if d := distance(got, want) / scale(want); !(d < 0.05) {
				t.Errorf("logits of the packed weights differ by %v of the largest from those of the twin", d)
			}
			for kernels, prompt := range map[string]string{"ref": "short", "cpu": "at_topk"} {
				g := named(prompt)
				want, got := answer(t, twin, "cpu", g, true), answer(t, repacked, kernels, g, true)
				if !slices.Equal(got.greedy, want.greedy) {
					t.Errorf("%s: greedy tokens %v, the twin's are %v", kernels, got.greedy, want.greedy)
				}
				other := want.rows()
				for i, row := range got.rows() {
					if d := maxDiff(row, other[i]); !(d <= 1e-4) {
						t.Fatalf("%s: logits of row %d differ by %v from those of the twin", kernels, i, d)
					}
				}
			}
		})
	}
}

// place copies a file, and makes its folder.
func place(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// answer runs a case with a float32 cache.
func answer(t *testing.T, dir, kernels string, g *Golden, precise bool) *outcome {
	t.Helper()
	src, err := family.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := kernel.NewRegistry(cpu.Backends(), ref.Backends()).Open(kernels, kernel.Options{Precise: precise})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close(); src.Close() })
	m, err := src.Load(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: "f32"})
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(m, cfg, g, options{})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
