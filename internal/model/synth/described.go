package synth

import (
	"encoding/binary"
	"strings"

	"sparrow/internal/model/config"
	"sparrow/internal/model/family"
	"sparrow/weight"
)

// Described returns a model without weights. Its tensors have the names, types and shapes of the release, computed from
// its small files. assumed lists the assumptions about properties that the files do not state; it may be empty. name is
// the name of the model.
func Described(name string, r config.Release) (src *family.Source, assumed string, err error) {
	d, err := r.Describe()
	if err != nil {
		return nil, "", err
	}
	m, err := r.Modules()
	if err != nil {
		return nil, "", err
	}
	o := Options{DType: FP8}
	if m.Base == config.FormatBF16 && d.Common().Family != config.DeepseekV41 {
		o.DType = BF16
	}
	c, err := New(r.File, r.Config, o)
	if err != nil {
		return nil, "", err
	}
	if d.Common().Family != config.DeepseekV41 { // DeepSeek-V4.1 has separate config fields for it
		c.retype(m)
		assumed = m.Assumed
	}
	if src, err = c.Dummy(name); err != nil {
		return nil, "", err
	}
	common := d.Common()
	src.Config.Format, src.Config.Losses, src.Config.Scheme = common.Format, common.Losses, common.Scheme
	src.Weights.Scheme = common.Scheme
	return src, assumed, nil
}

// retype assigns the types of a release to matrices.
func (c *Checkpoint) retype(m *config.Modules) {
	type answer struct {
		kind config.ModuleType
		ok   bool
	}
	known := map[string]answer{} // types by the name of a layer's first expert; all its experts have the same type
	for i := range c.tensors {
		t := &c.tensors[i]
		if len(t.shape) != 2 || !strings.HasSuffix(t.name, ".weight") || t.store == expertTable {
			continue
		}
		module := strings.TrimSuffix(t.name, ".weight")
		if before, after, ok := strings.Cut(module, ".experts."); ok {
			_, part, _ := strings.Cut(after, ".")
			module = before + ".experts.0." + part
		}
		a, seen := known[module]
		if !seen {
			a.kind, a.ok = m.Of(t.linear, spellings(module)...)
			known[module] = a
		}
		if a.ok {
			t.store, t.kind = released, a.kind
		}
	}
}

// official replaces parts of official names of DeepSeek-V4's modules by those of transformers.
var official = strings.NewReplacer(".ffn.", ".mlp.", ".w1", ".gate_proj", ".w2", ".down_proj", ".w3", ".up_proj")

// spellings returns the names that config files may use for a module.
func spellings(module string) []string {
	list := []string{module}
	if strings.HasPrefix(module, "layers.") {
		list = append(list, "model."+module, "model."+official.Replace(module))
	}
	if rest, ok := strings.CutPrefix(module, nextPrefix); ok {
		list = append(list, "model."+rest, "language_model.model."+rest)
	} else if strings.HasPrefix(module, "model.") {
		list = append(list, "language_model."+module)
	}
	return list
}

// appendReleased appends the tensors in which a release with type t.kind stores a matrix [out, in].
func appendReleased(list []weight.Tensor, t tensor) []weight.Tensor {
	out, in, k := t.shape[0], t.shape[1], t.kind
	stem := strings.TrimSuffix(t.name, ".weight")
	add := func(end string, d weight.DType, shape ...int) {
		list = append(list, weight.Tensor{Name: stem + end, DType: d, Shape: shape, Drawn: &weight.Distribution{}})
	}
	parts := func(n, size int) int {
		if size <= 0 || size > n {
			return 1
		}
		return (n + size - 1) / size
	}
	words, groups := 32/max(k.Bits, 1), parts(in, k.Group)
	switch {
	case k.Columns && k.Method == "awq":
		add(".qweight", weight.I32, in, parts(out, words))
		add(".qzeros", weight.I32, groups, parts(out, words))
		add(".scales", weight.F16, groups, out)
	case k.Columns:
		add(".qweight", weight.I32, parts(in, words), out)
		add(".qzeros", weight.I32, groups, parts(out, words))
		add(".scales", weight.F16, groups, out)
	case !k.Float:
		add(".weight_packed", weight.I32, out, parts(in, words))
		add(".weight_scale", weight.BF16, out, groups)
		list = append(list, weight.Tensor{Name: stem + ".weight_shape", DType: weight.I32, Shape: []int{2},
			Data: binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(out)), uint32(in))})
	case k.Bits == 4 && k.Group == 16:
		add(".weight", weight.U8, out, in/2)
		add(".weight_scale", weight.F8E4M3, out, groups)
		add(".weight_scale_2", weight.F32, 1)
		add(".input_scale", weight.F32, 1)
	case k.Bits == 4:
		add(".weight", weight.U8, out, in/2)
		add(".weight_scale", weight.F8E8M0, out, groups)
	case k.Group > 0:
		add(".weight", weight.F8E4M3, out, in)
		add(".weight_scale", weight.F8E8M0, out, groups)
	default:
		add(".weight", weight.F8E4M3, out, in)
		add(".weight_scale", weight.F32, parts(out, k.Block[0]), parts(in, k.Block[1]))
	}
	return list
}
