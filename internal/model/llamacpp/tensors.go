package llamacpp

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"sparrow/internal/num"
	"sparrow/weight"
	"sparrow/weight/gguf"
)

// names maps the tensor names of a family in GGUF files to the names in the original checkpoint.
type names struct {
	outside map[string]string // tensors outside of layers
	inLayer map[string]string // tensors of a layer with the same shape in both
	fused   map[string]string // tensors [experts, out, in] with one matrix of every expert
	prefix  string            // prefix of a layer's tensors in the checkpoint
	experts string            // prefix of an expert's matrices, after the layer's prefix
}

// dsaNames holds the tensor names of DeepSeek-V3.2 and GLM-5.
var dsaNames = &names{
	prefix: "model.layers.%d.", experts: "mlp.experts.",
	outside: map[string]string{
		"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
		"output.weight": "lm_head.weight",
	},
	inLayer: map[string]string{
		"attn_norm.weight": "input_layernorm.weight", "ffn_norm.weight": "post_attention_layernorm.weight",
		"attn_q.weight":   "self_attn.q_proj.weight",
		"attn_q_a.weight": "self_attn.q_a_proj.weight", "attn_q_a_norm.weight": "self_attn.q_a_layernorm.weight",
		"attn_q_b.weight": "self_attn.q_b_proj.weight", "attn_kv_a_mqa.weight": "self_attn.kv_a_proj_with_mqa.weight",
		"attn_kv_a_norm.weight": "self_attn.kv_a_layernorm.weight", "attn_output.weight": "self_attn.o_proj.weight",
		"indexer.attn_q_b.weight":       "self_attn.indexer.wq_b.weight",
		"indexer.attn_k.weight":         "self_attn.indexer.wk.weight",
		"indexer.proj.weight":           "self_attn.indexer.weights_proj.weight",
		"indexer.k_norm.weight":         "self_attn.indexer.k_norm.weight",
		"indexer.k_norm.bias":           "self_attn.indexer.k_norm.bias",
		"ffn_gate.weight":               "mlp.gate_proj.weight",
		"ffn_up.weight":                 "mlp.up_proj.weight",
		"ffn_down.weight":               "mlp.down_proj.weight",
		"ffn_gate_inp.weight":           "mlp.gate.weight",
		"exp_probs_b.bias":              "mlp.gate.e_score_correction_bias",
		"ffn_gate_shexp.weight":         "mlp.shared_experts.gate_proj.weight",
		"ffn_up_shexp.weight":           "mlp.shared_experts.up_proj.weight",
		"ffn_down_shexp.weight":         "mlp.shared_experts.down_proj.weight",
		"nextn.eh_proj.weight":          "eh_proj.weight",
		"nextn.enorm.weight":            "enorm.weight",
		"nextn.hnorm.weight":            "hnorm.weight",
		"nextn.embed_tokens.weight":     "embed_tokens.weight",
		"nextn.shared_head_head.weight": "shared_head.head.weight",
		"nextn.shared_head_norm.weight": "shared_head.norm.weight",
	},
	fused: map[string]string{"ffn_gate_exps.weight": "gate_proj", "ffn_up_exps.weight": "up_proj",
		"ffn_down_exps.weight": "down_proj"},
}

// expert returns the name of a matrix of an expert, after the prefix of its layer.
func (n *names) expert(e int, matrix string) string {
	return fmt.Sprintf("%s%d.%s.weight", n.experts, e, matrix)
}

// Names of the two parts of the up-projection of latent rows, and of the whole up-projection in old files.
const keyPart, valuePart, wholeLatent = "attn_k_b.weight", "attn_v_b.weight", "attn_kv_b.weight"

// dtypes maps the types of GGUF tensors without blocks to element types.
var dtypes = map[gguf.Type]weight.DType{gguf.F32: weight.F32, gguf.F16: weight.F16, gguf.BF16: weight.BF16,
	gguf.I32: weight.I32}

// parts holds, by layer, the tensors keyPart and valuePart that were found so far.
type parts map[int]*[2]*gguf.Tensor

// renamed lists the tensors of a file with the names of the original checkpoint.
func renamed(f *gguf.File, s *shape) ([]weight.Tensor, error) {
	var out []weight.Tensor
	var problems []string
	latent := parts{}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		list, err := s.translate(t, latent)
		if err != nil {
			problems = append(problems, err.Error())
		}
		out = append(out, list...)
	}
	for layer, p := range latent {
		t, err := s.joinLatent(layer, p)
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		out = append(out, t)
	}
	if len(problems) > 0 {
		slices.Sort(problems)
		const most = 50
		if n := len(problems) - most; n > 0 {
			problems = append(problems[:most], fmt.Sprintf("and %d more", n))
		}
		return nil, fmt.Errorf("gguf: %s: %w:\n  %s", f.Parts[0].Path, ErrUnsupported, strings.Join(problems, "\n  "))
	}
	return out, nil
}

// translate returns a tensor of the file in the form of the original checkpoint: one tensor, one for each expert, or
// none if the other part of an up-projection is still missing.
func (s *shape) translate(t *gguf.Tensor, latent parts) ([]weight.Tensor, error) {
	if name, ok := s.names.outside[t.Name]; ok {
		return one(t, name)
	}
	var layer int
	var rest string
	if n, err := fmt.Sscanf(t.Name, "blk.%d.%s", &layer, &rest); n != 2 || err != nil || layer < 0 {
		return nil, fmt.Errorf("tensor %s is unknown", t.Name)
	}
	prefix := fmt.Sprintf(s.names.prefix, layer)
	if name, ok := s.names.inLayer[rest]; ok {
		list, err := one(t, prefix+name)
		if strings.HasPrefix(rest, "ssm_conv1d_") {
			channels(&list[0])
		}
		return list, err
	}
	if s.names == nextNames && strings.TrimSuffix(rest, ".weight") == nextDecay {
		a, err := decayOf(t, prefix+nextALog)
		return []weight.Tensor{a}, err
	}
	if name, ok := s.names.fused[rest]; ok {
		return s.experts3D(t, prefix, name)
	}
	if s.latent > 0 && rest == wholeLatent {
		return one(t, prefix+"self_attn.kv_b_proj.weight")
	}
	if s.latent > 0 && (rest == keyPart || rest == valuePart) {
		p := latent[layer]
		if p == nil {
			p = new([2]*gguf.Tensor)
			latent[layer] = p
		}
		p[map[string]int{keyPart: 0, valuePart: 1}[rest]] = t
		return nil, nil
	}
	if s.names == v4Names && strings.HasPrefix(rest, "nextn.") {
		return nil, fmt.Errorf("tensor %s belongs to a drafting block, which is not supported in a GGUF file; use a "+
			"file of the model without it", t.Name)
	}
	return nil, fmt.Errorf("tensor %s is unknown", t.Name)
}

// one returns a tensor of the file with the given name.
func one(t *gguf.Tensor, name string) ([]weight.Tensor, error) {
	d, err := dtypeOf(t)
	return []weight.Tensor{{Name: name, DType: d, Shape: t.Shape, Data: t.Data, File: t.File, Offset: t.Offset}}, err
}

func dtypeOf(t *gguf.Tensor) (weight.DType, error) {
	if d, ok := dtypes[t.Type]; ok {
		return d, nil
	}
	if f, ok := t.Type.Block(); ok {
		return weight.Blocks(f), nil
	}
	return weight.Invalid, fmt.Errorf("tensor %s has type %v, which weights cannot have", t.Name, t.Type)
}

// experts3D returns a view of a fused tensor for each expert.
func (s *shape) experts3D(t *gguf.Tensor, prefix, name string) ([]weight.Tensor, error) {
	d, err := dtypeOf(t)
	if err != nil {
		return nil, err
	}
	if len(t.Shape) != 3 || t.Shape[0] != s.experts || s.experts == 0 {
		return nil, fmt.Errorf("tensor %s has shape %v, want a matrix for each of %d experts", t.Name, t.Shape,
			s.experts)
	}
	size := len(t.Data) / s.experts
	out := make([]weight.Tensor, s.experts)
	for e := range out {
		out[e] = weight.Tensor{Name: prefix + s.names.expert(e, name), DType: d, Shape: t.Shape[1:],
			Data: t.Data[e*size : (e+1)*size : (e+1)*size], File: t.File, Offset: t.Offset + int64(e*size)}
	}
	return out, nil
}

// joinLatent builds the up-projection [heads*(nope+v), latent] from its parts: the file stores keys as [heads, latent,
// nope] and values as [heads, v, latent]. F32 is kept; other types become bf16, with which operations on latent rows
// are fastest.
func (s *shape) joinLatent(layer int, p *[2]*gguf.Tensor) (weight.Tensor, error) {
	k, v := p[0], p[1]
	name := fmt.Sprintf("model.layers.%d.self_attn.kv_b_proj.weight", layer)
	switch {
	case k == nil || v == nil:
		return weight.Tensor{}, fmt.Errorf("layer %d has only one of blk.%d.%s and blk.%d.%s", layer, layer, keyPart,
			layer, valuePart)
	case !slices.Equal(k.Shape, []int{s.heads, s.latent, s.nope}):
		return weight.Tensor{}, fmt.Errorf("tensor %s has shape %v, want [%d %d %d]", k.Name, k.Shape, s.heads,
			s.latent, s.nope)
	case !slices.Equal(v.Shape, []int{s.heads, s.v, s.latent}):
		return weight.Tensor{}, fmt.Errorf("tensor %s has shape %v, want [%d %d %d]", v.Name, v.Shape, s.heads, s.v,
			s.latent)
	}
	dtype := weight.BF16
	if k.Type == gguf.F32 && v.Type == gguf.F32 {
		dtype = weight.F32
	}
	keys, err := floats(k)
	if err != nil {
		return weight.Tensor{}, err
	}
	values, err := floats(v)
	if err != nil {
		return weight.Tensor{}, err
	}
	rows := s.nope + s.v
	data := make([]byte, 0, s.heads*rows*s.latent*dtype.Size())
	appendValue := func(x float32) {
		if dtype == weight.F32 {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		} else {
			data = binary.LittleEndian.AppendUint16(data, num.BF16(x))
		}
	}
	for h := range s.heads {
		for n := range s.nope {
			for l := range s.latent {
				appendValue(keys[(h*s.latent+l)*s.nope+n])
			}
		}
		for _, x := range values[h*s.v*s.latent : (h+1)*s.v*s.latent] {
			appendValue(x)
		}
	}
	return weight.Tensor{Name: name, DType: dtype, Shape: []int{s.heads * rows, s.latent}, Data: data}, nil
}

// floats decodes a whole tensor.
func floats(t *gguf.Tensor) ([]float32, error) {
	d, err := dtypeOf(t)
	if err != nil {
		return nil, err
	}
	return weight.ReadF32(&weight.Tensor{Name: t.Name, DType: d, Shape: t.Shape, Data: t.Data, File: t.File})
}
