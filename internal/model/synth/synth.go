package synth

import (
	"encoding/json"
	"fmt"

	"sparrow/internal/model/config"
	"sparrow/weight"
)

// DType is the type in which the large matrices are stored.
type DType uint8

// Types in which matrices are stored.
const (
	BF16 DType = iota
	FP8        // as released: e4m3 in blocks of 128 x 128 and, in the experts of DeepSeek-V4, FP4 in groups of 32
	Int4       // experts in four bits with groups of 32, all other weights in BF16
)

// String returns the name that ParseDType reads.
func (d DType) String() string {
	switch d {
	case FP8:
		return "fp8"
	case Int4:
		return "int4"
	}
	return "bf16"
}

// DTypeNames lists the names that ParseDType accepts.
func DTypeNames() []string { return []string{"bf16", "fp8", "int4"} }

// ParseDType reads the name of a stored type.
func ParseDType(s string) (DType, error) {
	switch s {
	case "bf16":
		return BF16, nil
	case "fp8":
		return FP8, nil
	case "int4":
		return Int4, nil
	}
	return BF16, fmt.Errorf("%w: the dtype is %q, want bf16, fp8 or int4", ErrOptions, s)
}

// Options are the caller's settings in addition to the shape.
type Options struct {
	DType DType
	Seed  uint64
	// ShardBytes is the maximum size of the tensor data of one file, in bytes; 0 means a single file.
	ShardBytes int64
	// Repeat generates only the first values of each tensor and repeats them, so that a large checkpoint is written at
	// the speed of the disk.
	Repeat bool
	// NextN is the number of drafting layers: 0 or 1. Nil uses the number in the config.
	NextN *int
}

// Checkpoint describes a random checkpoint that is not written yet.
type Checkpoint struct {
	config  config.Description
	text    []byte // config.json
	options Options
	tensors []tensor
}

// Size describes the checkpoint that will be written.
type Size struct {
	Tensors    int   `json:"tensors"`    // number of tensors, including block scales
	Parameters int64 `json:"parameters"` // number of parameters, without block scales
	NextN      int64 `json:"next_n"`     // parameters of the drafting layer, included in Parameters
	Bytes      int64 `json:"bytes"`      // bytes of tensor data
}

// New prepares a checkpoint with the shape in a config.json: text is its contents, file its name in messages.
func New(file string, text []byte, o Options) (*Checkpoint, error) {
	if o.ShardBytes < 0 {
		return nil, fmt.Errorf("synth: %w: the shard size is %d bytes; give a positive size, or 0 for one file",
			ErrOptions, o.ShardBytes)
	}
	if o.DType > Int4 {
		return nil, fmt.Errorf("synth: %w: dtype %d is not BF16, FP8 or Int4", ErrOptions, o.DType)
	}
	text, err := rewrite(file, text, o)
	if err != nil {
		return nil, err
	}
	d, err := config.Describe(file, text)
	if err != nil {
		return nil, err
	}
	out := &Checkpoint{config: d, text: text, options: o}
	if _, ok := d.(*config.DSA); !ok && o.DType == Int4 {
		return nil, fmt.Errorf("synth: %s: %w: experts of %s cannot be int4, only those of DeepSeek-V3 and V3.2, "+
			"GLM-5, GLM-4.7-Flash and Kimi-K2; use fp8", file, ErrOptions, d.Common().Family)
	}
	switch c := d.(type) {
	case *config.DSA:
		out.tensors = listTensors(c, o.DType)
	case *config.V4:
		out.tensors = listV4(c, o.DType == FP8, c.Format == config.FormatFP4)
	case *config.V41:
		out.tensors = listV41(c, o.DType == FP8, true)
	case *config.Next:
		out.tensors = listNext(c, o.DType == FP8)
	default:
		return nil, fmt.Errorf("synth: %s: %w: %T", file, config.ErrFamily, d)
	}
	return out, nil
}

// rewrite sets the fields of a config.json that depend on the options: drafting layer and quantisation.
func rewrite(file string, text []byte, o Options) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("synth: %s: %w", file, err)
	}
	if fields == nil {
		return nil, fmt.Errorf("synth: %s: it holds null, want an object", file)
	}
	if o.NextN != nil {
		if err := setDrafts(fields, *o.NextN); err != nil {
			return nil, fmt.Errorf("synth: %s: %w", file, err)
		}
	}
	delete(fields, "dtype")
	fields["torch_dtype"] = json.RawMessage(`"bfloat16"`)
	delete(fields, "quantization_config")
	if o.DType == Int4 {
		b, err := int4Config()
		if err != nil {
			return nil, fmt.Errorf("synth: %s: %w", file, err)
		}
		fields["quantization_config"] = b
	}
	if o.DType == FP8 {
		q := quantization{Scheme: "dynamic", Format: "e4m3", Method: "fp8", Block: [2]int{block, block}}
		if string(fields["model_type"]) == `"`+string(config.DeepseekV41)+`"` {
			q.Block, q.Experts = [2]int{smallBlock, smallBlock}, "fp4"
		}
		if pow2Scales(fields) {
			q.ScaleFormat = "ue8m0"
		}
		b, err := json.Marshal(q)
		if err != nil {
			return nil, fmt.Errorf("synth: %s: %w", file, err)
		}
		fields["quantization_config"] = b
	}
	out, err := json.MarshalIndent(fields, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("synth: %s: %w", file, err)
	}
	return append(out, '\n'), nil
}

// setDrafts sets the number of drafting layers, next to the other fields of the text network.
func setDrafts(fields map[string]json.RawMessage, n int) error {
	const name = "num_nextn_predict_layers"
	inner, nested := fields["text_config"]
	if !nested {
		fields[name] = json.RawMessage(fmt.Sprint(n))
		return nil
	}
	var text map[string]json.RawMessage
	if err := json.Unmarshal(inner, &text); err != nil {
		return fmt.Errorf("text_config: %w", err)
	}
	if text["compress_ratios"] != nil { // DeepSeek-V4.1 has no NextN layer
		return nil
	}
	text[name] = json.RawMessage(fmt.Sprint(n))
	out, err := json.Marshal(text)
	fields["text_config"] = out
	return err
}

type quantization struct {
	Scheme      string `json:"activation_scheme"`
	Format      string `json:"fmt"`
	Method      string `json:"quant_method"`
	ScaleFormat string `json:"scale_fmt,omitempty"`
	Block       [2]int `json:"weight_block_size"`
	Experts     string `json:"expert_dtype,omitempty"`
}

// pow2Scales reports whether scales are powers of two, as in DeepSeek's releases; in GLM's they are not (v32 spec,
// 4.4).
func pow2Scales(fields map[string]json.RawMessage) bool {
	family := string(fields["model_type"])
	return family == `"`+string(config.DeepseekV32)+`"` || family == `"`+string(config.DeepseekV4)+`"` ||
		family == `"`+string(config.DeepseekV41)+`"`
}

// Config returns the part of the description that every family has.
func (c *Checkpoint) Config() *config.Config { return c.config.Common() }

// Model returns the whole description: *config.DSA, *config.V4 or *config.Next.
func (c *Checkpoint) Model() config.Description { return c.config }

// ConfigJSON returns the config.json that Write writes with the weights.
func (c *Checkpoint) ConfigJSON() []byte { return c.text }

// Size returns the size of the checkpoint that Write would write.
func (c *Checkpoint) Size() Size {
	var s Size
	for _, src := range c.sources(&filler{}) {
		n, _ := src.Bytes()
		s.Tensors++
		s.Bytes += n
	}
	for _, t := range c.tensors {
		n := elements(t.shape)
		s.Parameters += n
		if t.nextN {
			s.NextN += n
		}
	}
	return s
}

func (c *Checkpoint) sources(f *filler) []weight.Source {
	var out []weight.Source
	for _, t := range c.tensors {
		out = append(out, f.sources(t)...)
	}
	return out
}
