package v4_test

import (
	"encoding/binary"
	"math"
	"regexp"
	"testing"

	"sparrow/internal/num"
	"sparrow/internal/testkit/steps"
	"sparrow/weight"
)

var (
	fp8Linears = regexp.MustCompile(`\.(wq_a|wq_b|wkv|wo_b|shared_experts\.w[123])\.weight$`)
	compressed = regexp.MustCompile(`compressor\.`)
	fp4Experts = regexp.MustCompile(`\.experts\.\d+\.w[123]\.weight$`)
)

func (c *checkpoint) floats(name string) []float32 {
	c.Helper()
	out := make([]float32, len(c.data[name])/2)
	for i := range out {
		out[i] = num.FromBF16(binary.LittleEndian.Uint16(c.data[name][2*i:]))
	}
	return out
}

// quantise rewrites linears as FP8 in blocks of 128 x 128 and experts as packed FP4 with a scale for 32 inputs, as
// releases store them. If widened is set, it writes the same values as float32.
func (c *checkpoint) quantise(widened bool) {
	for name, s := range c.tensors {
		switch {
		case fp4Experts.MatchString(name):
			c.packFP4(name, s.Shape, widened)
		case fp8Linears.MatchString(name) && !compressed.MatchString(name):
			c.packFP8(name, s.Shape, widened)
		}
	}
}

func (c *checkpoint) packFP4(name string, shape []int, widened bool) {
	v := c.floats(name)
	data, scales := make([]byte, len(v)/2), make([]byte, len(v)/32)
	for g := range scales {
		var amax float32
		for _, x := range v[32*g:][:32] {
			amax = max(amax, x, -x)
		}
		scales[g] = num.E8M0(num.CeilPow2(amax / 6))
		s := num.FromE8M0(scales[g])
		for i := 32 * g; i < 32*(g+1); i += 2 {
			a, b := num.E2M1(v[i]/s), num.E2M1(v[i+1]/s)
			data[i/2] = num.PackE2M1(a, b)
			v[i], v[i+1] = num.FromE2M1(a)*s, num.FromE2M1(b)*s
		}
	}
	if widened {
		c.set(name, weight.F32, shape, float32Bytes(v))
		return
	}
	c.set(name, weight.I8, []int{shape[0], shape[1] / 2}, data)
	c.set(name[:len(name)-len("weight")]+"scale", weight.F8E8M0, []int{shape[0], shape[1] / 32}, scales)
}

// asNVFP4 casts packed experts to NVFP4 as releases do, without loss: each scale becomes two e4m3 scales with a common
// factor.
func (c *checkpoint) asNVFP4() {
	const factor = 1.0 / (1 << 8)
	for name, s := range c.tensors {
		if !fp4Experts.MatchString(name) {
			continue
		}
		stem := name[:len(name)-len(".weight")]
		var scales []byte
		for _, e := range c.data[stem+".scale"] {
			b := num.E4M3(num.FromE8M0(e) / factor)
			if num.FromE4M3(b)*factor != num.FromE8M0(e) {
				c.Fatalf("%s: the scale 2^%d does not fit", name, int(e)-127)
			}
			scales = append(scales, b, b)
		}
		c.set(name, weight.U8, s.Shape, c.data[name])
		c.set(stem+".weight_scale", weight.F8E4M3, []int{s.Shape[0], s.Shape[1] / 8}, scales)
		c.set(stem+".weight_scale_2", weight.F32, nil, float32Bytes([]float32{factor}))
		c.set(stem+".input_scale", weight.F32, nil, float32Bytes([]float32{1}))
		delete(c.tensors, stem+".scale")
	}
}

func (c *checkpoint) packFP8(name string, shape []int, widened bool) {
	v := c.floats(name)
	rows, cols := (shape[0]+127)/128, (shape[1]+127)/128
	data, scales := make([]byte, len(v)), make([]byte, rows*cols)
	for b := range scales {
		var amax float32
		each := func(do func(i int)) {
			for r := b / cols * 128; r < min((b/cols+1)*128, shape[0]); r++ {
				for k := b % cols * 128; k < min((b%cols+1)*128, shape[1]); k++ {
					do(r*shape[1] + k)
				}
			}
		}
		each(func(i int) { amax = max(amax, v[i], -v[i]) })
		scales[b] = num.E8M0(num.CeilPow2(amax / num.MaxE4M3))
		s := num.FromE8M0(scales[b])
		each(func(i int) {
			data[i] = num.E4M3(v[i] / s)
			v[i] = num.FromE4M3(data[i]) * s
		})
	}
	if widened {
		c.set(name, weight.F32, shape, float32Bytes(v))
		return
	}
	c.set(name, weight.F8E4M3, shape, data)
	c.set(name[:len(name)-len("weight")]+"scale", weight.F8E8M0, []int{rows, cols}, scales)
}

func float32Bytes(v []float32) []byte {
	var out []byte
	for _, f := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(f))
	}
	return out
}

// FP8 linears and packed FP4 experts give the same results as their values in float32: with the same bits on the
// reference device and within rounding with the fast kernels.
func TestQuantisedWeights(t *testing.T) {
	packed, wide := readOracle(t), readOracle(t)
	packed.quantise(false)
	wide.quantise(true)
	dir, dirWide := packed.write(sameName, map[string]any{"expert_dtype": "fp4"}), wide.write(sameName, nil)
	want := logits(t, dirWide, "ref")
	(&steps.Bench{TB: t}).SameBits("packed weights in the reference", logits(t, dir, "ref"), want)
	for r, row := range logits(t, dir, "cpu") {
		for i, v := range row {
			if d := math.Abs(float64(v - want[r][i])); d > 2e-3 {
				t.Fatalf("row %d logit %d is %v, want %v", r, i, v, want[r][i])
			}
		}
	}
	packed.asNVFP4()
	cast := packed.write(sameName, map[string]any{"expert_dtype": "fp4", "quantization_config": map[string]any{
		"quant_method": "fp8", "weight_block_size": []int{128, 128}, "moe_quant_algo": "NVFP4",
		"quant_algo": "MIXED_PRECISION"}})
	(&steps.Bench{TB: t}).SameBits("the same experts as NVFP4", logits(t, cast, "cpu"), logits(t, dir, "cpu"))
	// The original weights give other logits. If they did not, the weights would not have been quantised.
	var worst float64
	for r, row := range logits(t, oracle, "cpu") {
		for i, v := range row {
			worst = max(worst, math.Abs(float64(v-want[r][i])))
		}
	}
	if worst < 1e-2 {
		t.Errorf("quantised weights differ from plain ones by %g only", worst)
	}
}
