package op

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sparrow/internal/model/nn"
	"sparrow/internal/testkit/archive"
	"sparrow/kernel"
	"sparrow/weight"
)

func hostView(b []byte, d kernel.DType, rows, cols int) kernel.Tensor {
	return kernel.Tensor{Buf: kernel.HostBuffer(b), DType: d, Rows: rows, Cols: cols, Stride: cols}
}

// The device widens the golden cases of all formats to the expected values. FP8 in blocks of 128 x 128 is not covered
// here: kernels that have their own tests multiply it with quantised rows. Rows whose width is not a multiple of 16 are
// refused with a message.
func TestGPUFormats(t *testing.T) {
	b := onGPU(t)
	dir := filepath.Join(archive.Unpack(t, "../../../testdata/oracle/formats-1.tar.gz"), "formats-1")
	text, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	b.must(err)
	type config struct {
		Method  string `json:"quant_method"`
		Block   []int  `json:"weight_block_size"`
		Bits    int    `json:"bits"`
		Size    int    `json:"group_size"`
		Sym     bool   `json:"sym"`
		Stored  string `json:"checkpoint_format"`
		Weights struct {
			Bits int    `json:"num_bits"`
			Type string `json:"type"`
			Size int    `json:"group_size"`
		} `json:"weights"`
	}
	var manifest struct {
		Cases map[string]struct {
			Config config `json:"config"`
			Shape  []int  `json:"shape"`
		} `json:"cases"`
	}
	b.must(json.Unmarshal(text, &manifest))
	packed := 0
	for name, c := range manifest.Cases {
		family, id, _ := strings.Cut(name, "/")
		if family == "gguf" || family == "checkpoints" || strings.Contains(id, "_act") {
			continue
		}
		stored, err := weight.OpenFile(filepath.Join(dir, family+".stored.safetensors"))
		b.must(err)
		golden, err := weight.OpenFile(filepath.Join(dir, family+".values.safetensors"))
		b.must(err)
		t.Cleanup(func() { stored.Close(); golden.Close() })
		q := c.Config
		stored.Scheme = weight.Scheme{Method: q.Method, Symmetric: q.Sym, PlainZeros: q.Stored == "gptq_v2"}
		copy(stored.Scheme.Block[:], q.Block)
		if q.Bits > 0 {
			stored.Scheme.Groups = []weight.Group{{Bits: q.Bits, Size: q.Size}}
		}
		if q.Weights.Type == "int" {
			stored.Scheme.Groups = []weight.Group{{Bits: q.Weights.Bits, Size: q.Weights.Size}}
		}
		out, in, end := c.Shape[len(c.Shape)-2], c.Shape[len(c.Shape)-1], ".weight"
		l := nn.NewLoader(stored, b.ref, nil)
		var list []kernel.Weight
		if len(c.Shape) == 3 {
			end = ".gate_up_proj"
			stack, err := stored.Stack(id + end)
			b.must(err)
			for _, m := range stack {
				list = append(list, kernel.Weight{Data: hostView(m.Data.Data, kernel.E2M1x2, out, in/2),
					Scale: hostView(m.Scale.Data, kernel.E8M0, out, in/32), BlockRows: 1, BlockCols: 32})
			}
		} else {
			list = []kernel.Weight{l.Weight(id+end, out, in)}
		}
		tensor, ok := golden.Tensor(id + end)
		if !ok {
			t.Fatalf("%s has no values", name)
		}
		values, err := weight.ReadF32(tensor)
		b.must(err)
		for i, w := range list {
			if !w.Data.Given() {
				t.Fatalf("%s is not read", name)
			}
			if in%productSide != 0 {
				_, err := b.gpu.Prepare(w, kernel.Projected)
				if err == nil || !strings.Contains(err.Error(), "multiple of 16") {
					t.Errorf("%s of %d columns: %v", name, in, err)
				}
			} else if _, ok := packedFormat(w); ok {
				b.sameValues(name, w, values[i*out*in:][:out*in])
				packed++
			}
		}
	}
	if packed < 20 {
		t.Errorf("%d matrices stay packed, want 20 or more", packed)
	}
}
