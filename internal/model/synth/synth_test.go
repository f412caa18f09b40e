package synth

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sparrow/internal/model/config"
	"sparrow/weight"
)

// preset returns the checkpoint of a preset.
func preset(t testing.TB, name string, o Options) *Checkpoint {
	t.Helper()
	text, err := PresetConfig(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(name, text, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// written writes a preset to a new folder and returns the folder.
func written(t testing.TB, name string, o Options) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	if err := preset(t, name, o).Write(context.Background(), dir, nil, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

func one(n int) *int { return &n }

// The tensor table of this package gives the numbers of tensors and parameters that the releases publish.
func TestReleasedShapesHaveTheReleasedSizes(t *testing.T) {
	for _, c := range []struct {
		preset string
		want   Size
	}{
		{"deepseek-v3.2", Size{Tensors: 92_425, Parameters: 685_355_329_792, NextN: 13_477_385_728,
			Bytes: 689_469_018_240}},
		{"glm-5", Size{Tensors: 119_028, Parameters: 753_864_139_008, NextN: 9_952_920_576}},
		// These are 284.33 billion parameters and the drafting block.
		{"deepseek-v4-flash", Size{Tensors: 69_187, Parameters: 290_944_616_402, NextN: 6_610_048_891,
			Bytes: 159_609_485_896}},
		{"deepseek-v4-pro", Size{Tensors: 145_116, Parameters: 1_598_839_674_782, NextN: 25_840_145_979,
			Bytes: 864_704_792_696}},
		// The counts exclude the vision tower, which has 347 tensors and 563,627,008 parameters of 2 bytes.
		{"glm-5.3-flash", Size{Tensors: 76_108 - 347, Parameters: 321_323_031_390 - 563_627_008, NextN: 7_432_592_416,
			Bytes: 328_326_771_576 - 2*563_627_008}},
		{"glm-5.2", Size{Tensors: 118_629, Parameters: 753_329_940_480, NextN: 9_952_920_576}},
	} {
		got := preset(t, c.preset, Options{DType: FP8}).Size()
		if c.want.Bytes == 0 {
			c.want.Bytes = got.Bytes
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.preset, got, c.want)
		}
	}
}

func TestMiniIsTheBenchmarkShape(t *testing.T) {
	c := preset(t, "v32-mini", Options{}).Model().(*config.DSA)
	a, f, x := c.Attention, c.FFN, c.Indexer
	dense := 0
	for _, d := range f.Dense {
		if d {
			dense++
		}
	}
	for _, v := range []struct {
		name      string
		got, want int
	}{
		{"hidden", c.Hidden, 1024}, {"layers", c.Layers, 8}, {"dense layers", dense, 1},
		{"dense inner", f.DenseInner, 2048}, {"heads", a.Heads, 16}, {"q_lora", a.QLora, 512},
		{"experts", f.Experts, 16}, {"inner", f.Inner, 512}, {"top", f.TopK, 4}, {"groups", f.Groups, 4},
		{"kept groups", f.KeepGroups, 2}, {"shared", f.Shared, 1}, {"index heads", x.Heads, 64},
		{"top-k", x.TopK, 2048}, {"vocabulary", c.Vocab, 129280},
	} {
		if v.got != v.want {
			t.Errorf("%s is %d, want %d", v.name, v.got, v.want)
		}
	}
	if c.Rope.Yarn == nil || c.Rope.Yarn.Factor != 40 || c.Rope.Yarn.Original != 4096 {
		t.Errorf("rope is %+v, want the YaRN of DeepSeek-V3.2", c.Rope)
	}
}

func TestWrittenBytesAreAsPredicted(t *testing.T) {
	for _, o := range []Options{{}, {DType: FP8}, {DType: FP8, NextN: one(1), ShardBytes: 400_000},
		{NextN: one(1), ShardBytes: 1}} {
		for _, name := range []string{"v32-tiny", "glm-tiny", "v4-tiny"} {
			c, dir := preset(t, name, o), filepath.Join(t.TempDir(), "new", "model")
			var last, total int64
			err := c.Write(context.Background(), dir, []File{{"tokenizer.json", []byte("{}")}}, func(done, all int64) {
				if done <= last || done > all {
					t.Fatalf("progress went from %d to %d of %d", last, done, all)
				}
				last, total = done, all
			})
			if err != nil {
				t.Fatal(err)
			}
			w, err := weight.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			size := c.Size()
			if len(w.Names()) != size.Tensors || w.Bytes() != size.Bytes || last != size.Bytes || total != size.Bytes {
				t.Errorf("%s %+v: %d tensors, %d bytes, progress %d of %d; predicted %+v", name, o, len(w.Names()),
					w.Bytes(), last, total, size)
			}
			if files := len(w.Files()); o.ShardBytes > 0 && files < 3 || o.ShardBytes == 0 && files != 1 {
				t.Errorf("%s %+v: %d files", name, o, files)
			}
			if got, err := os.ReadFile(filepath.Join(dir, "tokenizer.json")); err != nil || string(got) != "{}" {
				t.Errorf("the file beside is %q, %v", got, err)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestSameSeedSameBytesWhateverTheShards(t *testing.T) {
	one, two := written(t, "v32-tiny", Options{Seed: 7}), written(t, "v32-tiny", Options{Seed: 7, ShardBytes: 500_000})
	other := written(t, "v32-tiny", Options{Seed: 8})
	a, b, c := open(t, one), open(t, two), open(t, other)
	differ := 0
	for _, name := range a.Names() {
		x, _ := a.Tensor(name)
		y, ok := b.Tensor(name)
		if !ok || string(x.Data) != string(y.Data) {
			t.Errorf("%s differs between one file and several", name)
		}
		if z, _ := c.Tensor(name); string(x.Data) != string(z.Data) {
			differ++
		}
	}
	if differ != len(a.Names()) {
		t.Errorf("another seed changed %d of %d tensors", differ, len(a.Names()))
	}
}

// The first values for a seed are part of the contract: figures measured on a synthetic checkpoint name the seed.
func TestValuesForASeedStayTheSame(t *testing.T) {
	v := make([]float32, 5)
	newRandom(1, "model.norm.weight", 1, 0.05).fill(v)
	want := []float32{1.0094723, 0.99729365, 0.9489176, 0.99594045, 0.95263886}
	for i := range v {
		if v[i] != want[i] {
			t.Fatalf("values %v, want %v", v, want)
		}
	}
}

func TestValuesAreSpreadAsAsked(t *testing.T) {
	const n = 1 << 16
	v := make([]float32, n)
	newRandom(3, "x", 0.5, 2).fill(v)
	mean, square := 0.0, 0.0
	for _, f := range v {
		mean += float64(f) / n
	}
	for _, f := range v {
		square += (float64(f) - mean) * (float64(f) - mean) / n
	}
	if math.Abs(mean-0.5) > 0.03 || math.Abs(math.Sqrt(square)-2) > 0.03 {
		t.Errorf("mean %g, deviation %g; want 0.5 and 2", mean, math.Sqrt(square))
	}
}

func TestDraftLayerRepeatsEmbeddingAndHead(t *testing.T) {
	w := open(t, written(t, "v32-tiny", Options{NextN: one(1)}))
	for copied, from := range map[string]string{
		"model.layers.3.embed_tokens.weight":     "model.embed_tokens.weight",
		"model.layers.3.shared_head.head.weight": "lm_head.weight",
	} {
		a, ok := w.Tensor(copied)
		b, _ := w.Tensor(from)
		if !ok || string(a.Data) != string(b.Data) {
			t.Errorf("%s is no copy of %s", copied, from)
		}
	}
}

func TestRefusesBadInput(t *testing.T) {
	tiny, err := PresetConfig("v32-tiny")
	v4, absent := PresetConfig("v4-tiny")
	if err := errors.Join(err, absent); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		text string
		o    Options
		want string
	}{
		{"negative shard size", string(tiny), Options{ShardBytes: -1}, "shard size is -1 bytes"},
		{"two drafting layers", string(tiny), Options{NextN: one(2)}, "num_nextn_predict_layers is 2"},
		{"unknown dtype", string(tiny), Options{DType: 9}, "not BF16, FP8 or Int4"},
		{"int4 of a family without", string(v4), Options{DType: Int4}, "experts of deepseek_v4 cannot be int4"},
		{"no JSON", "hello", Options{}, "invalid character"},
		{"null", "null", Options{}, "want an object"},
		{"another family", `{"model_type":"llama"}`, Options{}, "deepseek_v32, glm_moe_dsa"},
		{"a family without random weights", `{"model_type":"deepseek_v41"}`, Options{}, "deepseek_v41"},
	} {
		if _, err := New("config.json", []byte(c.text), c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want it to say %q", c.name, err, c.want)
		}
	}
	if _, err := PresetConfig("v33"); !errors.Is(err, ErrPreset) || !strings.Contains(err.Error(), "v32-mini") {
		t.Errorf("unknown preset: %v", err)
	}
}

func TestNothingIsReplacedAndNothingLeftBehind(t *testing.T) {
	c := preset(t, "v32-tiny", Options{})
	dir := written(t, "v32-tiny", Options{})
	before := listing(t, dir)
	if err := c.Write(context.Background(), dir, nil, nil); !errors.Is(err, weight.ErrExists) {
		t.Errorf("second write: %v, want weight.ErrExists", err)
	}
	if after := listing(t, dir); after != before {
		t.Errorf("a refused write changed the folder from %s to %s", before, after)
	}

	weightsOnly := t.TempDir()
	if err := os.WriteFile(filepath.Join(weightsOnly, "model.safetensors"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := c.Write(context.Background(), weightsOnly, nil, nil); !errors.Is(err, weight.ErrExists) {
		t.Errorf("weights without a config: %v, want weight.ErrExists", err)
	}
	if got := listing(t, weightsOnly); got != "model.safetensors" {
		t.Errorf("a refused write left %s", got)
	}
}

func TestInterruptedWriteLeavesNothing(t *testing.T) {
	c := preset(t, "v32-tiny", Options{DType: FP8, ShardBytes: 200_000})
	total := c.Size().Bytes
	for _, share := range []int64{0, 3, 9} { // the write is cancelled after this many tenths
		ctx, stop := context.WithCancel(context.Background())
		parent := t.TempDir()
		if share == 0 {
			stop()
		}
		err := c.Write(ctx, filepath.Join(parent, "a", "b"), nil, func(done, _ int64) {
			if done > total*share/10 {
				stop()
			}
		})
		stop()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("after %d tenths: %v, want context.Canceled", share, err)
		}
		if got := listing(t, parent); got != "" {
			t.Errorf("after %d tenths the folder holds %s", share, got)
		}
	}
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func open(t *testing.T, dir string) *weight.Checkpoint {
	t.Helper()
	w, err := weight.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// A checkpoint that is generated in memory has the tensors and the bytes of one that is written to disk.
func TestDummyHasTheShapesOfACheckpoint(t *testing.T) {
	for _, name := range []string{"v32-tiny", "v4-tiny", "deepseek-v4-flash", "kimi-slice"} {
		for _, dtype := range []DType{BF16, FP8, Int4} {
			if dtype == Int4 && name != "kimi-slice" {
				continue
			}
			c := preset(t, name, Options{DType: dtype})
			src, err := c.Dummy(name)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			if n, want := src.Weights.Bytes(), c.Size(); n != want.Bytes || len(src.Weights.Names()) != want.Tensors {
				t.Errorf("%s, %v: %d bytes in %d tensors, want %+v", name, dtype, n, len(src.Weights.Names()), want)
			}
			for _, tensor := range src.Weights.Names() {
				x, _ := src.Weights.Tensor(tensor)
				if drawn := x.Drawn != nil && x.Data == nil; !drawn && !strings.HasSuffix(tensor, ".weight_shape") {
					t.Errorf("%s, %v: %s is not drawn", name, dtype, tensor)
				}
			}
		}
	}
}

// If values are repeated, later blocks have the values and the scales of the first block.
func TestRepeatedValues(t *testing.T) {
	dir := t.TempDir()
	c := preset(t, "v32-tiny", Options{DType: FP8, Repeat: true})
	if err := c.Write(t.Context(), dir, nil, nil); err != nil {
		t.Fatal(err)
	}
	w, err := weight.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if w.Bytes() != c.Size().Bytes {
		t.Errorf("%d bytes, want %d", w.Bytes(), c.Size().Bytes)
	}
	seen := false
	for _, name := range w.Names() {
		m, err := w.Matrix(name)
		if err != nil || m.Scale == nil || m.Rows < 2*block {
			continue
		}
		seen = true
		half, scales := block*m.Cols, 4*m.Scale.Shape[1]
		if !bytes.Equal(m.Data.Data[:half], m.Data.Data[half:2*half]) ||
			!bytes.Equal(m.Scale.Data[:scales], m.Scale.Data[scales:2*scales]) {
			t.Errorf("%s: the second rows are not the first", name)
		}
	}
	if !seen {
		t.Error("no matrix has more than one block of rows")
	}
}
