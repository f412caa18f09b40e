package synth

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"strings"

	"sparrow/internal/model/config"
	"sparrow/internal/num"
	"sparrow/weight"
)

// This file writes routed experts in four bits, as in the releases of Kimi-K2-Thinking and K2.5 (dense-mla spec, 4):
// format pack-quantized of compressed-tensors, groups of 32 values with a bf16 scale. A code is the value plus 8. All
// other weights are BF16.

// formatInt4 is the format of a description with routed experts in four bits.
const formatInt4 config.Format = "compressed-tensors: int4 in groups of 32"

const (
	int4Group = 32
	int4Most  = 7 // largest magnitude with a code for both signs
	int4Zero  = 8 // code of the value 0
)

// AsReleased returns the type of the weights in a model's release.
func AsReleased(d config.Description) DType {
	switch d.Common().Format {
	case config.FormatBF16:
		return BF16
	case formatInt4:
		return Int4
	}
	return FP8
}

func int4Config() (json.RawMessage, error) {
	return json.Marshal(map[string]any{
		"quant_method": "compressed-tensors", "format": "pack-quantized",
		"ignore": []string{"re:.*self_attn.*", "re:.*shared_experts.*",
			`re:.*mlp\.(gate|up|gate_up|down)_proj.*`, "lm_head"},
		"config_groups": map[string]any{"group_0": map[string]any{"targets": []string{"Linear"},
			"weights": map[string]any{"num_bits": 4, "type": "int", "group_size": int4Group, "strategy": "group",
				"symmetric": true, "dynamic": false}}},
	})
}

// int4Names returns the names of the three tensors of a matrix: codes I32 [out, in/8], scales BF16 [out, in/32], and
// shape I32 [2] with out and in.
func int4Names(name string) (codes, scales, shape string) {
	stem := strings.TrimSuffix(name, ".weight")
	return stem + ".weight_packed", stem + ".weight_scale", stem + ".weight_shape"
}

// int4Shape returns the bytes of the tensor that holds the shape.
func int4Shape(t tensor) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(t.shape[0]))
	return binary.LittleEndian.AppendUint32(b, uint32(t.shape[1]))
}

// int4Sources lists the tensors that are written for t.
func (f *filler) int4Sources(t tensor) []weight.Source {
	codes, scales, shape := int4Names(t.name)
	return []weight.Source{
		{Name: codes, DType: weight.I32, Shape: []int{t.shape[0], t.shape[1] / 8},
			Fill: func(w io.Writer) error { return f.int4(w, t) }},
		{Name: scales, DType: weight.BF16, Shape: []int{t.shape[0], t.shape[1] / int4Group},
			Fill: func(w io.Writer) error { return f.scales(w, t, f.int4, f.writeBF16) }},
		{Name: shape, DType: weight.I32, Shape: []int{2},
			Fill: func(w io.Writer) error { return f.write(w, int4Shape(t)) }},
	}
}

// int4 generates the random values of t row by row, computes the scale of each group and writes pairs of codes. If w is
// nil, only the scales are computed.
func (f *filler) int4(w io.Writer, t tensor) error {
	out, in := t.shape[0], t.shape[1]
	r := newRandom(f.seed, t.like, t.mean, t.spread)
	scales := make([]float32, 0, out*in/int4Group)
	for row := 0; row < out; row += block {
		if err := f.ctx.Err(); err != nil {
			return err
		}
		v := f.take(min(block, out-row) * in)
		b := f.takeBytes(len(v) / 2)
		if row == 0 || !f.repeat {
			r.fill(v)
			for at := 0; at < len(v); at += int4Group {
				scales = append(scales, quantiseInt4(b[at/2:(at+int4Group)/2], v[at:at+int4Group]))
			}
		} else {
			scales = append(scales, scales[:len(v)/int4Group]...)
		}
		if w == nil {
			continue
		}
		if err := f.write(w, b); err != nil {
			return err
		}
	}
	f.keep(t, scales)
	return nil
}

// quantiseInt4 packs a group and returns its scale, which is exact in bf16: the largest magnitude becomes 7. A group
// of zeros has scale 1.
func quantiseInt4(dst []byte, v []float32) float32 {
	peak := float32(0)
	for _, x := range v {
		peak = max(peak, float32(math.Abs(float64(x))))
	}
	scale := num.RoundBF16(peak / int4Most)
	if scale == 0 {
		scale = 1
	}
	code := func(x float32) byte {
		n := math.RoundToEven(float64(x / scale))
		return byte(int4Zero + int(max(min(n, int4Most), -int4Most)))
	}
	for i := range dst {
		dst[i] = code(v[2*i]) | code(v[2*i+1])<<4
	}
	return scale
}

// int4Drawn returns the tensors of t without values. All groups have the same scale, chosen so that the largest value
// is at most the largest code.
func int4Drawn(t tensor, seed uint64) []weight.Tensor {
	codes, scales, shape := int4Names(t.name)
	s := num.RoundBF16(float32(bellPeak * t.spread / int4Most))
	return []weight.Tensor{
		{Name: codes, DType: weight.I32, Shape: []int{t.shape[0], t.shape[1] / 8},
			Drawn: &weight.Distribution{Seed: seed, Spread: float32(t.spread) / s}},
		{Name: scales, DType: weight.BF16, Shape: []int{t.shape[0], t.shape[1] / int4Group},
			Drawn: &weight.Distribution{Seed: seed, Mean: s}},
		{Name: shape, DType: weight.I32, Shape: []int{2}, Data: int4Shape(t)},
	}
}
