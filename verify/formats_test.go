package verify

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/cuda/op"
	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/num"
	"sparrow/internal/testkit/archive"
	"sparrow/internal/testkit/rounded"
	"sparrow/internal/testkit/testflag"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/cuda"
	"sparrow/kernel/ref"
	"sparrow/plan"
	"sparrow/weight"
)

// A repacked checkpoint gives the same answers as the checkpoint with dequantised weights: logits within 1e-4 with
// exact products, and the same greedy tokens. The matrices of attention, of dense blocks and of experts are repacked.
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
	for _, name := range []string{"nvfp4-modelopt", "int4-int8-compressed", "fp8-channel-compressed", "awq", "gptq"} {
		t.Run(name, func(t *testing.T) {
			repacked := filepath.Join(dir, name)
			if name == "awq" || name == "gptq" { // made from the integers of a checkpoint that was tested before
				byColumns(t, filepath.Join(dir, "int4-int8-compressed"), repacked, name)
			}
			twin := twinOf(t, base, repacked)
			// The short case also runs with the kernels of a server, which quantise rows to eight bits.
			short := named("short")
			want, got := answer(t, twin, "cpu", short, false), answer(t, repacked, "cpu", short, false)
			if d := distance(got, want) / scale(want); !(d < 0.05) {
				t.Errorf("logits of the packed weights differ by %v of the largest from those of the twin", d)
			}
			for kernels, prompt := range map[string]string{"ref": "short", "cpu": "at_topk"} {
				if kernels == "ref" && name != "nvfp4-modelopt" && !*testflag.Long {
					continue // package kernel/cpu compares products of the other formats with the reference
				}
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

// On a GPU weights stay packed; they give the same answers as the dequantised checkpoint on the GPU.
func TestGPURepackedAnswerAsTheirTwins(t *testing.T) {
	if err := cuda.Available(); err != nil {
		t.Skipf("needs a Hopper GPU: %v", err)
	}
	const base = "../testdata/oracle/deepseek_v32-1"
	dir := filepath.Join(archive.Unpack(t, "../testdata/oracle/formats-1.tar.gz"), "formats-1", "checkpoints")
	cases, err := ReadGolden(base)
	if err != nil {
		t.Fatal(err)
	}
	g := &cases[slices.IndexFunc(cases, func(g Golden) bool { return g.Name == "short" })]
	for _, name := range []string{"nvfp4-modelopt", "int4-int8-compressed", "fp8-channel-compressed"} {
		t.Run(name, func(t *testing.T) {
			dev, err := op.Open(0)
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			own := rounded.On(&ref.Device{Rounded: true}, dev.Hardware())
			repacked := filepath.Join(dir, name)
			twin := twinOf(t, base, repacked)
			got, reference := answerOn(t, dev, repacked, g), answerOn(t, own, repacked, g)
			// Another order of terms changes how rows are rounded. As in verify, twice that difference is allowed.
			moved := answerOn(t, rounded.On(&ref.Device{Rounded: true, Moved: true}, dev.Hardware()), repacked, g)
			allowed := max(0.05, 2*distance(reference, moved)/scale(reference))
			if d := distance(got, reference) / scale(reference); !(d < allowed) {
				t.Errorf("logits differ by %v of the largest from the reference with the same rounding, limit %v",
					d, allowed)
			}
			// FP8 with a scale for each row quantises rows; the products of the dequantised checkpoint do not.
			limit := max(0.05, 2*distance(reference, answerOn(t, own, twin, g))/scale(reference))
			want := answerOn(t, dev, twin, g)
			if d := distance(got, want) / scale(want); !(d < limit) {
				t.Errorf("logits of the packed weights differ by %v of the largest from those of the twin, limit %v", d,
					limit)
			}
		})
	}
}

// answerOn runs a case on a device with bf16 activations and returns the outcome.
func answerOn(t *testing.T, dev kernel.Device, dir string, g *Golden) *outcome {
	t.Helper()
	src, err := family.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	m, err := src.Load(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	hw, err := model.Hardware(dev)
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: "bf16"})
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(m, cfg, g, options{})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// twinOf adds the tensors that a repacked checkpoint shares with its base, and writes the folder of the dequantised
// checkpoint, which it returns.
func twinOf(t *testing.T, base, repacked string) string {
	t.Helper()
	twin := filepath.Join(repacked, "twin")
	place(t, filepath.Join(base, "model.safetensors"), filepath.Join(repacked, "base.safetensors"))
	for from, to := range map[string]string{"twin.config.json": "config.json",
		"twin.index.json": "model.safetensors.index.json", "dequantised.safetensors": "dequantised.safetensors",
		"base.safetensors": "base.safetensors"} {
		place(t, filepath.Join(repacked, from), filepath.Join(twin, to))
	}
	return twin
}

// byColumns writes the int4 experts of a checkpoint as AWQ or GPTQ, and the dequantised checkpoint; other weights are
// equal in both.
func byColumns(t *testing.T, from, to, method string) {
	t.Helper()
	for _, name := range []string{"twin.config.json", "twin.index.json", "dequantised.safetensors"} {
		place(t, filepath.Join(from, name), filepath.Join(to, name))
	}
	src, err := weight.OpenFile(filepath.Join(from, "quantised.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	var index struct {
		Map map[string]string `json:"weight_map"`
	}
	var config map[string]any
	readJSON(t, filepath.Join(from, "twin.index.json"), &index)
	readJSON(t, filepath.Join(from, "twin.config.json"), &config)
	var tensors []weight.Source
	for _, name := range src.Names() {
		stem, ok := strings.CutSuffix(name, ".weight_packed")
		if !ok || !strings.Contains(name, ".experts.") {
			continue
		}
		m, err := src.Matrix(stem + ".weight")
		if err != nil {
			t.Fatal(err)
		}
		delete(index.Map, stem+".weight")
		for _, s := range columns(t, stem, m, method) {
			tensors = append(tensors, s)
			index.Map[s.Name] = "columns.safetensors"
		}
	}
	config["quantization_config"] = map[string]any{"quant_method": method, "bits": 4, "group_size": 32,
		"version": "gemm", "zero_point": true, "sym": method == "gptq"}
	writeJSON(t, filepath.Join(to, "model.safetensors.index.json"), index)
	writeJSON(t, filepath.Join(to, "config.json"), config)
	if err := weight.Create(filepath.Join(to, "columns.safetensors"), tensors, nil); err != nil {
		t.Fatal(err)
	}
}

// columns returns an int4 matrix in the element order of AWQ or GPTQ.
func columns(t *testing.T, stem string, m weight.Matrix, method string) []weight.Source {
	scales, err := m.Scales()
	if err != nil {
		t.Fatal(err)
	}
	groups := m.Cols / m.BlockCols
	q, half := make([]uint32, m.Rows*m.Cols/8), make([]byte, 2*groups*m.Rows)
	for r := range m.Rows {
		for c := range m.Cols {
			code := uint32(m.Data.Data[r*m.RowBytes+c/2]) >> (c % 2 * 4) & 15
			if method == "gptq" {
				q[c/8*m.Rows+r] |= code << (c % 8 * 4)
			} else {
				q[c*(m.Rows/8)+r/8] |= code << (4 * []int{0, 4, 1, 5, 2, 6, 3, 7}[r%8])
			}
		}
		for g := range groups {
			v := num.F16(scales[r*groups+g])
			if num.FromF16(v) != scales[r*groups+g] {
				t.Fatalf("scale %v is no half", scales[r*groups+g])
			}
			binary.LittleEndian.PutUint16(half[2*(g*m.Rows+r):], v)
		}
	}
	var data []byte
	for _, w := range q {
		data = binary.LittleEndian.AppendUint32(data, w)
	}
	shape := []int{m.Cols, m.Rows / 8}
	if method == "gptq" {
		shape = []int{m.Cols / 8, m.Rows}
	}
	return []weight.Source{weight.SourceBytes(stem+".qweight", weight.I32, shape, data),
		weight.SourceBytes(stem+".qzeros", weight.I32, []int{groups, m.Rows / 8}, bytes.Repeat([]byte{0x88},
			groups*m.Rows/2)),
		weight.SourceBytes(stem+".scales", weight.F16, []int{groups, m.Rows}, half)}
}

func readJSON(t *testing.T, file string, to any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func writeJSON(t *testing.T, file string, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(file, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// place copies a file and creates its folder.
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

// answer runs a case with a float32 cache and returns the outcome.
func answer(t *testing.T, dir, kernels string, g *Golden, precise bool) *outcome {
	t.Helper()
	src, err := family.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := kernel.NewRegistry(cpu.Backends(), ref.Backends()).Open(kernels,
		kernel.Options{Precise: precise, Workers: 1})
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
