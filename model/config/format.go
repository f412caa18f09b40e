package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Format is how a checkpoint stores its matrices, by the name that people know it by.
type Format string

// The formats whose matrices are read.
const (
	FormatBF16 Format = "BF16"
	FormatFP8  Format = "FP8 in blocks of 128 x 128"
	FormatFP4  Format = "FP4 experts, the rest FP8 in blocks of 128 x 128"
	FormatGGUF Format = "GGUF" // each tensor names its own type
)

// readFormats is what an error lists.
const readFormats = "BF16, F16, F32, FP8 in blocks of 128 x 128 and, in the experts of DeepSeek-V4, FP4 with " +
	"a scale for 32 values, and GGUF files"

// rawQuantization is the quantization_config of config.json, or quantization of hf_quant_config.json.
type rawQuantization struct {
	Method      string              `json:"quant_method"`
	Algorithm   string              `json:"quant_algo"`     // of modelopt
	MoE         string              `json:"moe_quant_algo"` // of modelopt
	Layers      map[string]rawLayer `json:"quantized_layers"`
	ScaleFormat string              `json:"scale_fmt"`
	Block       []int               `json:"weight_block_size"`
	Packing     string              `json:"format"` // of compressed-tensors
	Groups      map[string]rawGroup `json:"config_groups"`
	Bits        int                 `json:"bits"` // of AWQ, GPTQ and AutoRound
	GroupSize   int                 `json:"group_size"`
}

// rawLayer is the format of one module in modelopt's list.
type rawLayer struct {
	Algorithm string `json:"quant_algo"`
}

// rawGroup is the format of modules that compressed-tensors treats alike.
type rawGroup struct {
	Weights struct {
		Bits     int    `json:"num_bits"`
		Type     string `json:"type"`
		Strategy string `json:"strategy"`
		Size     int    `json:"group_size"`
		Block    []int  `json:"block_structure"`
	} `json:"weights"`
}

// fp8 reports whether matrices are FP8 blocks.
func (q rawQuantization) fp8() bool { return q.Method == "fp8" }

// pow2Rows reports whether FP8 weights were made for rows whose scales are powers of two.
func (q rawQuantization) pow2Rows() bool { return q.ScaleFormat == "ue8m0" }

// format finds how weights are stored, from config.json, hf_quant_config.json and the names of tensors. A format whose
// weights are not read is an error that names it, and the field and the value that say so.
func (r Release) format(fields map[string]json.RawMessage) (Format, error) {
	var q rawQuantization
	if text := fields["quantization_config"]; text != nil && string(text) != "null" {
		if err := json.Unmarshal(text, &q); err != nil {
			return "", fmt.Errorf("quantization_config: %w", err)
		}
		if err := q.refuse("quantization_config"); err != nil {
			return "", err
		}
	}
	if r.ModelOpt != nil {
		var file struct {
			Quantization rawQuantization `json:"quantization"`
		}
		if err := json.Unmarshal(r.ModelOpt, &file); err != nil {
			return "", fmt.Errorf("%s: %w", QuantFile, err)
		}
		file.Quantization.Method = "modelopt"
		if err := file.Quantization.refuse(QuantFile + ": quantization"); err != nil {
			return "", err
		}
	}
	if err := refuseNames(r.Tensors); err != nil {
		return "", err
	}
	switch {
	case q.Method == "":
		return FormatBF16, nil
	case expertsAreFP4(fields):
		return FormatFP4, nil
	}
	return FormatFP8, nil
}

// expertsAreFP4 reports whether a DeepSeek-V4 config stores experts in FP4, which it does where it does not say.
func expertsAreFP4(fields map[string]json.RawMessage) bool {
	family, _ := familyOf(fields)
	kind := string(fields["expert_dtype"])
	return family == DeepseekV4 && (kind == "" || kind == "null" || kind == `"fp4"`)
}

// refuse returns an error for a format whose weights are not read; at is where it stands.
func (q rawQuantization) refuse(at string) error {
	not := func(field, value, name string) error {
		return fmt.Errorf("%s.%s is %s: weights in %s: %w; supported are %s", at, field, value, name, ErrFormat,
			readFormats)
	}
	if algorithms := q.algorithms(); len(algorithms) > 0 {
		field := "quant_algo"
		if q.Algorithm == "" || strings.EqualFold(q.Algorithm, "MIXED_PRECISION") {
			field = "quantized_layers"
		}
		return not(field, `"`+strings.Join(algorithms, `", "`)+`"`, "modelopt's "+strings.Join(algorithms, " and "))
	}
	size := fmt.Sprintf("int%d in groups of %d", q.Bits, q.GroupSize)
	switch q.Method {
	case "fp8":
		if !slices.Equal(q.Block, []int{128, 128}) {
			if len(q.Block) != 2 {
				return not("weight_block_size", "missing", "FP8 with one scale for each matrix or row")
			}
			return not("weight_block_size", fmt.Sprint(q.Block), fmt.Sprintf("FP8 in blocks of %d x %d", q.Block[0],
				q.Block[1]))
		}
		return nil
	case "modelopt": // without an algorithm: nothing is quantised
		return nil
	case "compressed-tensors":
		return not("quant_method", `"compressed-tensors"`, "compressed-tensors: "+q.groups())
	case "awq":
		return not("quant_method", `"awq"`, "AWQ: "+size)
	case "gptq":
		return not("quant_method", `"gptq"`, "GPTQ: "+size)
	case "auto-round", "intel/auto-round":
		return not("quant_method", fmt.Sprintf("%q", q.Method), "auto-round: "+size)
	}
	return not("quant_method", fmt.Sprintf("%q", q.Method), fmt.Sprintf("a format that is not known, %q", q.Method))
}

// algorithms lists modelopt's formats, each once, sorted: those of all modules and those of single ones.
func (q rawQuantization) algorithms() []string {
	var out []string
	add := func(name string) {
		if name = strings.ToUpper(name); name != "" && name != "NONE" && name != "MIXED_PRECISION" {
			out = append(out, name)
		}
	}
	add(q.Algorithm)
	add(q.MoE)
	for _, l := range q.Layers {
		add(l.Algorithm)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// groups describes the formats of compressed-tensors, each once, sorted.
func (q rawQuantization) groups() string {
	var out []string
	for _, g := range q.Groups {
		w := g.Weights
		kind := fmt.Sprintf("%s%d", w.Type, w.Bits)
		switch w.Strategy {
		case "group", "tensor_group":
			kind += fmt.Sprintf(" in groups of %d", w.Size)
		case "block":
			kind += fmt.Sprintf(" in blocks of %v", w.Block)
		default:
			kind += " with a scale for each " + w.Strategy
		}
		out = append(out, kind)
	}
	if len(out) == 0 {
		return q.Packing
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ", ")
}

// packedNames are ends of tensor names that tell of a format which config.json may not name.
var packedNames = []struct{ suffix, format string }{
	{".weight_scale_2", "NVFP4 of modelopt"},
	{".weight_global_scale", "NVFP4 of compressed-tensors"},
	{".weight_packed", "compressed-tensors, packed"},
	{".qweight", "AWQ or GPTQ"},
}

// refuseNames finds a format that the names of tensors alone tell of.
func refuseNames(names []string) error {
	for _, p := range packedNames {
		for _, name := range names {
			if strings.HasSuffix(name, p.suffix) {
				return fmt.Errorf("the tensor %s: weights in %s: %w; supported are %s", name, p.format, ErrFormat,
					readFormats)
			}
		}
	}
	return nil
}
