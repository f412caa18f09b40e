package estimate

import (
	"slices"
	"strings"

	"sparrow/internal/model/family"
	"sparrow/weight"
)

// Weights are the sizes of a model's weights on a device, in the types of its tensors.
type Weights struct {
	Expert int64  // mean bytes of a routed expert, scales included
	Type   string // type of the experts' values
	Rest   int64  // bytes of all other weights on one GPU
}

// WeightsOf adds up the sizes of a model's tensors, from its files or, without files, as in the release.
func WeightsOf(src *family.Source) (w Weights) {
	all := int64(0)
	e := expertsOf(src.Model)
	placed := len(e.layers) > src.Model.Common().Layers // experts of drafting layers may be in host memory too
	var first *weight.Tensor                            // values of experts with the first name in alphabetical order
	for t := range src.Weights.All() {
		name := t.Name
		values, _ := src.Weights.Parameters(t)
		switch {
		case strings.Contains(name, ".experts.") && (placed || !strings.HasPrefix(name, "mtp.")):
			if all += t.Bytes(); values > 0 && (first == nil || name < first.Name) {
				first = t
			}
		case strings.Contains(name, ".kv_b_proj."): // up-projection of latent rows in bf16, as stored and transposed
			w.Rest += 4 * values
		case strings.Contains(name, ".engram.embed."): // n-gram tables are in host memory
		case strings.HasPrefix(name, "model.visual."), strings.HasSuffix(name, ".shared_head.head.weight"),
			strings.HasSuffix(name, ".embed_tokens.weight") && strings.Contains(name, ".layers."):
			// Vision towers and copies of embedding and head are not loaded.
		case t.DType == weight.F32 && len(t.Shape) == 2 && values > 0:
			w.Rest += 2 * values
		default:
			w.Rest += t.Bytes()
		}
	}
	if n := e.count(); n > 0 {
		w.Expert = all / int64(n)
	}
	if first != nil {
		values, _ := src.Weights.Parameters(first)
		w.Type = typeName(src.Weights, first, values)
	}
	return w
}

// QuantisedRows names formats of matrices, other than experts and FP8 blocks of 128 x 128, that a Hopper GPU multiplies
// by FP8 rows.
func QuantisedRows(c *weight.Checkpoint) (formats []string) {
	var stems []string
	for t := range c.All() {
		stem, ok := strings.CutSuffix(strings.TrimSuffix(t.Name, "_packed"), ".weight")
		if ok && !strings.Contains(stem, ".experts.") && !strings.HasSuffix(stem, ".kv_b_proj") {
			stems = append(stems, stem)
		}
	}
	slices.Sort(stems) // the formats have the same order for every order of the tensors
	for _, stem := range stems {
		m, err := c.Matrix(stem + ".weight")
		format := ""
		switch {
		case err != nil || m.Scale == nil:
		case m.Values == weight.F8E4M3 && m.BlockCols >= m.Cols:
			format = "FP8 with a scale for each row or matrix"
		case m.Values == weight.F4E2M1x2 && m.BlockCols == 32:
			format = "MXFP4"
		}
		if format != "" && !slices.Contains(formats, format) {
			formats = append(formats, format)
		}
	}
	return formats
}

// typeName returns the name of the type of a tensor's values.
func typeName(c *weight.Checkpoint, t *weight.Tensor, values int64) string {
	switch t.DType {
	case weight.I32:
		if t.Bytes()*8 >= 8*values {
			return "int8"
		}
		return "int4"
	case weight.U8, weight.I8, weight.F4E2M1x2:
		if s, ok := c.Tensor(t.Name + "_scale"); ok && s.DType == weight.F8E4M3 {
			return "nvfp4"
		}
		if t.Bytes() == values {
			return "int8"
		}
		return "e2m1"
	case weight.F8E4M3:
		return "e4m3"
	}
	return strings.ToLower(t.DType.String())
}
