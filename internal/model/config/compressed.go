package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sparrow/weight"
)

// rawGroup is the format of a group of modules of compressed-tensors.
type rawGroup struct {
	Packing string `json:"format"`
	Weights struct {
		Bits     int    `json:"num_bits"`
		Type     string `json:"type"`
		Strategy string `json:"strategy"`
		Size     int    `json:"group_size"`
		Block    []int  `json:"block_structure"`
	} `json:"weights"`
}

// compressedFormats are the supported formats of compressed-tensors.
var compressedFormats = []string{"pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
	"nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized"}

// compressed reads the formats of compressed-tensors. The format of each module is found later, from its tensors:
// targets and ignore are patterns of several kinds, for names that may differ from those of tensors.
func (q *rawQuantization) compressed(not refusal) (stored, error) {
	for field, text := range map[string]json.RawMessage{"sparsity_config": q.Sparsity,
		"transform_config": q.Transform} {
		if !harmlessConfig(text) {
			return stored{}, not(field, clip(text), "compressed-tensors with "+strings.TrimSuffix(field, "_config"))
		}
	}
	packings := []string{q.Packing}
	var names []string
	out := stored{}
	fp8 := false
	for _, g := range q.Groups {
		packing := g.Packing
		if packing == "" {
			packing = q.Packing
		}
		packings = append(packings, packing)
		w := g.Weights
		names = append(names, g.name())
		switch {
		case w.Type == "int" && (w.Bits == 4 || w.Bits == 8):
			out.scheme.Groups = append(out.scheme.Groups, weight.Group{Bits: w.Bits, Size: max(w.Size, 0)})
		case w.Type == "float" && w.Bits == 8:
			fp8 = true
			if len(w.Block) == 2 {
				copy(out.scheme.Block[:], w.Block)
			}
			if w.Strategy == "group" {
				out.losses = append(out.losses, fp8Slow)
			}
		case w.Type == "float" && w.Bits == 4:
		default:
			return stored{}, not("config_groups", fmt.Sprintf("%s%d", w.Type, w.Bits), "compressed-tensors: "+g.name())
		}
	}
	for _, p := range packings {
		if p != "" && p != "mixed-precision" && !slices.Contains(compressedFormats, p) {
			return stored{}, not("format", fmt.Sprintf("%q", p), "compressed-tensors: "+p)
		}
	}
	slices.Sort(names)
	out.format = Format("compressed-tensors: " + strings.Join(slices.Compact(names), ", "))
	if len(names) == 0 {
		out.format = Format("compressed-tensors: " + q.Packing)
	}
	if fp8 && out.scheme.Block != [2]int{128, 128} {
		out.losses = append(out.losses, fp8OnGPUs)
	}
	return out, nil
}

// harmlessConfig reports whether a part of the configuration has no effect.
func harmlessConfig(text json.RawMessage) bool {
	var fields map[string]any
	if len(text) == 0 || json.Unmarshal(text, &fields) != nil || len(fields) == 0 {
		return len(fields) == 0
	}
	return fields["format"] == "dense"
}

// name returns the format of a group as text.
func (g rawGroup) name() string {
	w := g.Weights
	kind := fmt.Sprintf("%s%d", w.Type, w.Bits)
	if w.Type == "float" {
		kind = fmt.Sprintf("FP%d", w.Bits)
	}
	switch {
	case w.Type == "float" && w.Bits == 4 && w.Size == 16:
		return "NVFP4"
	case w.Type == "float" && w.Bits == 4 && w.Size == 32:
		return "MXFP4"
	case w.Strategy == "group" || w.Strategy == "tensor_group":
		return kind + fmt.Sprintf(" in groups of %d", w.Size)
	case w.Strategy == "block":
		return kind + fmt.Sprintf(" in blocks of %v", w.Block)
	}
	return kind + " with a scale for each " + w.Strategy
}
