package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sparrow/weight"
)

// Format is the common name of the format in which a checkpoint stores its matrices.
type Format string

// Formats that other packages refer to.
const (
	FormatBF16 Format = "BF16"
	FormatFP8  Format = "FP8 in blocks of 128 x 128"
	FormatFP4  Format = "FP4 experts, the rest FP8 in blocks of 128 x 128"
	FormatGGUF Format = "GGUF" // each tensor has its own type
)

// readFormats is the list of supported formats in error messages.
const readFormats = "BF16, F16, F32, FP8 with scales for blocks, rows or matrices, MXFP4, NVFP4, compressed-tensors " +
	"(int4, int8, FP8, FP4), AWQ (gemm), GPTQ of 4 or 8 bits without reordered columns, and GGUF files"

// rawQuantization holds the fields of quantization_config in config.json, or of quantization in hf_quant_config.json.
type rawQuantization struct {
	Method      string              `json:"quant_method"`
	Algorithm   string              `json:"quant_algo"`     // format, as modelopt names it
	MoE         string              `json:"moe_quant_algo"` // format of the experts, as modelopt names it
	Layers      map[string]rawLayer `json:"quantized_layers"`
	ScaleFormat string              `json:"scale_fmt"`
	Block       []int               `json:"weight_block_size"`

	Packing   string              `json:"format"` // set by compressed-tensors, like the next three fields
	Groups    map[string]rawGroup `json:"config_groups"`
	Sparsity  json.RawMessage     `json:"sparsity_config"`
	Transform json.RawMessage     `json:"transform_config"`

	Bits      int            `json:"bits"` // bits per value, in AWQ, GPTQ and AutoRound
	GroupSize int            `json:"group_size"`
	Version   string         `json:"version"` // set by AWQ: the order of values in a word
	Symmetric bool           `json:"sym"`     // set by GPTQ, like the next four fields
	Reordered bool           `json:"desc_act"`
	Static    bool           `json:"static_groups"`
	Stored    string         `json:"checkpoint_format"`
	Dynamic   map[string]any `json:"dynamic"`
	Pack      string         `json:"packing_format"` // set by AutoRound

	Quark struct {
		Weight struct {
			Type string `json:"dtype"`
			Size int    `json:"group_size"`
		} `json:"weight"`
	} `json:"global_quant_config"`

	CacheScheme    json.RawMessage `json:"kv_cache_scheme"`
	CacheAlgorithm string          `json:"kv_cache_quant_algo"`
}

// fp8 reports whether matrices are FP8 in the format of the original releases.
func (q rawQuantization) fp8() bool { return q.Method == "fp8" }

// pow2Rows reports whether rows that are multiplied by FP8 weights must have scales that are powers of two.
func (q rawQuantization) pow2Rows() bool { return q.ScaleFormat == "ue8m0" }

// stored describes how a checkpoint's matrices are stored.
type stored struct {
	format Format
	scheme weight.Scheme
	losses []string // settings that are ignored or slow
}

// format finds how weights are stored, from config.json and hf_quant_config.json. For an unsupported format it returns
// an error with its name, its field and its value. Which matrices have the format follows from the tensors.
func (r Release) format(fields map[string]json.RawMessage) (stored, error) {
	q, at, err := r.quantization(fields)
	if err != nil {
		return stored{}, err
	}
	if q.Method == "" {
		return stored{format: FormatBF16}, nil
	}
	out, err := q.read(at, expertsAreFP4(fields))
	if err != nil {
		return stored{}, err
	}
	if cache := string(q.CacheScheme); cache != "" && cache != "null" || q.CacheAlgorithm != "" {
		out.losses = append(out.losses, "kv_cache_scheme: the cache computes scales for its own rows (--kv chooses "+
			"its layout)")
	}
	return out, nil
}

// quantization reads the fields that describe the format, and returns them with the path of their object. Fields of
// hf_quant_config.json are added to those of config.json.
func (r Release) quantization(fields map[string]json.RawMessage) (q rawQuantization, at string, err error) {
	at = "quantization_config"
	text := fields[at]
	switch {
	case text != nil:
	case fields["compression_config"] != nil:
		at = "compression_config"
		text = fields[at]
	case r.Older != nil:
		at, text, q.Method = OlderFile, r.Older, "gptq"
	}
	if text != nil && string(text) != "null" {
		if err := json.Unmarshal(text, &q); err != nil {
			return q, at, fmt.Errorf("%s: %w", at, err)
		}
	}
	if r.ModelOpt == nil {
		return q, at, nil
	}
	var file struct {
		Quantization rawQuantization `json:"quantization"`
	}
	if err := json.Unmarshal(r.ModelOpt, &file); err != nil {
		return q, at, fmt.Errorf("%s: %w", QuantFile, err)
	}
	own := file.Quantization
	if len(own.algorithms()) > 0 && len(q.algorithms()) == 0 {
		q.Algorithm, q.Layers, at = own.Algorithm, own.Layers, QuantFile+": quantization"
		if q.Method == "" {
			q.Method = "modelopt"
		}
	}
	if q.CacheAlgorithm == "" {
		q.CacheAlgorithm = own.CacheAlgorithm
	}
	return q, at, nil
}

// expertsAreFP4 reports whether a DeepSeek-V4 config stores experts in FP4, which is the default.
func expertsAreFP4(fields map[string]json.RawMessage) bool {
	family, _ := familyOf(fields)
	kind := string(fields["expert_dtype"])
	return family == DeepseekV4 && (kind == "" || kind == "null" || kind == `"fp4"`)
}

// refusal makes the error for a format that is not supported.
type refusal func(field, value, name string) error

// read returns the format that the fields describe; at is the path of quantization_config.
func (q *rawQuantization) read(at string, experts4 bool) (stored, error) {
	not := func(field, value, name string) error {
		return fmt.Errorf("%s.%s is %s: weights in %s: %w; want one of these: %s", at, field, value, name, ErrFormat,
			readFormats)
	}
	switch q.Method {
	case "fp8":
		out, err := q.blocks(not, experts4)
		if err == nil && len(q.algorithms()) > 0 {
			return q.modelopt(not, out)
		}
		return out, err
	case "modelopt", "modelopt_fp4":
		return q.modelopt(not, stored{})
	case "compressed-tensors":
		return q.compressed(not)
	case "mxfp4":
		return stored{format: "MXFP4"}, nil
	case "quark":
		if w := q.Quark.Weight; w.Type != "fp4" || w.Size != 32 {
			return stored{}, not("global_quant_config.weight", fmt.Sprintf("%q in groups of %d", w.Type, w.Size),
				"quark: "+w.Type)
		}
		return stored{format: "MXFP4 (quark)"}, nil
	case "awq", "gptq", "auto-round", "intel/auto-round":
		return q.columns(not)
	}
	return stored{}, not("quant_method", fmt.Sprintf("%q", q.Method), fmt.Sprintf("the unknown format %q",
		q.Method))
}

// blocks reads the FP8 format of the original releases.
func (q *rawQuantization) blocks(not refusal, experts4 bool) (stored, error) {
	out := stored{format: FormatFP8}
	switch {
	case len(q.Block) == 0:
		out.format = "FP8 with one scale for each matrix"
	case len(q.Block) != 2 || q.Block[0] < 1 || q.Block[1] < 1 || q.Block[0] > mostSize || q.Block[1] > mostSize:
		return out, not("weight_block_size", fmt.Sprint(q.Block), "FP8 in blocks of an unknown size")
	case !slices.Equal(q.Block, []int{128, 128}):
		out.format = Format(fmt.Sprintf("FP8 in blocks of %d x %d", q.Block[0], q.Block[1]))
	}
	copy(out.scheme.Block[:], q.Block)
	if experts4 && out.format == FormatFP8 {
		out.format = FormatFP4
	} else if experts4 {
		out.format = "FP4 experts, the rest " + out.format
	}
	if !q.merges() {
		out.losses = append(out.losses, fp8OnGPUs)
	}
	if len(q.Block) == 2 && q.Block[0] < slowRows {
		out.losses = append(out.losses, fp8Slow)
	}
	return out, nil
}

// merges reports whether GPUs multiply the blocks as FP8: they have 128 x 128 values, or they are smaller and can be
// merged (kernel.Weight.Merges) unless their scales differ by too much.
func (q *rawQuantization) merges() bool {
	return slices.Equal(q.Block, []int{128, 128}) || q.pow2Rows() && len(q.Block) == 2 && 128%q.Block[0] == 0 &&
		128%q.Block[1] == 0
}

// fp8OnGPUs is the notice for FP8 in blocks that GPUs do not multiply as FP8.
const fp8OnGPUs = "full speed of prompts on GPUs: FP8 whose scales are not for blocks of 128 x 128 is multiplied " +
	"there as BF16, at about half of FP8's rate"

// fp8Slow is the notice for FP8 with scales for fewer than slowRows rows of a weight: the CPU kernel then scales the
// input rows again for each such group of weight rows.
const (
	slowRows = 8
	fp8Slow  = "full speed on the CPU: FP8 with scales for parts of a row is about half as fast as blocks of 128 x 128"
)

// algorithms lists the formats that the fields of modelopt name, for all modules and for single modules, sorted and
// without duplicates.
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
