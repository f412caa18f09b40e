package weight

import (
	"slices"
	"strings"
)

// Name endings of tensors without parameters: scales and zero points, and tensors whose contents are not needed.
var (
	scaleEnds = []string{"_scale_inv", ".scale", ".weight_scale", ".weight_scale_2", ".weight_global_scale",
		".weight_zero_point", ".scales", ".qzeros"}
	otherEnds = []string{".weight_shape", ".weight_g_idx", ".g_idx", ".input_scale", ".input_global_scale",
		".output_scale", ".k_scale", ".v_scale", ".inv_freq"}
)

// Parameters returns the number of parameters in a tensor, in which packed values count individually, and the number of
// scales and zero points. They are computed from shape and name; only weight_shape is read.
func (c *Checkpoint) Parameters(t *Tensor) (values, scales int64) {
	is := func(end string) bool { return strings.HasSuffix(t.Name, end) }
	n := int64(t.Elements())
	plain := is(".weight") // the most frequent ending, which is in neither list
	switch {
	case !plain && slices.ContainsFunc(otherEnds, is):
		return 0, 0
	case !plain && slices.ContainsFunc(scaleEnds, is):
		return 0, n
	case is(".weight_packed") && t.DType == I32:
		if shape, ok := c.tensors[strings.TrimSuffix(t.Name, "_packed")+"_shape"]; ok {
			if v, err := ReadI32(shape); err == nil && len(v) == 2 {
				return int64(v[0]) * int64(v[1]), 0
			}
		}
		return n, 0
	case is(".qweight"):
		bits := 4
		if g := c.Scheme.Groups; len(g) > 0 && g[0].Bits > 0 {
			bits = g[0].Bits
		}
		return n * 32 / int64(bits), 0
	case t.DType == U8 || t.DType == I8 && !c.integers(t.Name):
		return 2 * n, 0
	}
	return n, 0
}

// integers reports whether a tensor of type I8 contains integers: its scale is a float of 16 or 32 bits.
func (c *Checkpoint) integers(name string) bool {
	scale, ok := c.tensors[name+"_scale"]
	return ok && floatScale(scale)
}
