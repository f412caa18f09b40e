package llamacpp

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"sparrow/internal/model/config"
	"sparrow/weight"
	"sparrow/weight/gguf"
)

// nextNames holds the tensor names of GLM-5.3-Flash: those of GLM-5, of residual streams and pooled index keys as in
// DeepSeek-V4, and of linear attention. nextDecay is not included, because the file stores a different value.
var nextNames = func() *names {
	n := *dsaNames
	n.inLayer = maps.Clone(n.inLayer)
	for _, site := range []string{"attn", "ffn"} {
		for _, part := range []string{"fn", "base", "scale"} {
			n.inLayer["hc_"+site+"_"+part+".weight"] = "hc_" + site + "_" + part
		}
	}
	maps.Copy(n.inLayer, map[string]string{
		"indexer_compressor_gate.weight": "self_attn.indexer.index_kpool_compress_gate",
		"indexer_compressor_ape.weight":  "self_attn.indexer.index_kpool_compress_ape",
		"attn_k.weight":                  "self_attn.k_proj.weight",
		"attn_v.weight":                  "self_attn.v_proj.weight",
		"ssm_conv1d_q.weight":            "self_attn.q_conv1d.weight",
		"ssm_conv1d_k.weight":            "self_attn.k_conv1d.weight",
		"ssm_conv1d_v.weight":            "self_attn.v_conv1d.weight",
		"ssm_f_a.weight":                 "self_attn.f_a_proj.weight",
		"ssm_f_b.weight":                 "self_attn.f_b_proj.weight",
		"ssm_g_a.weight":                 "self_attn.g_a_proj.weight",
		"ssm_g_b.weight":                 "self_attn.g_b_proj.weight",
		"ssm_beta.weight":                "self_attn.b_proj.weight",
		"ssm_dt.bias":                    "self_attn.dt_bias",
		"ssm_norm.weight":                "self_attn.o_norm.weight",
	})
	return &n
}()

// nextDecay is the name of a tensor in the file; its values are -exp(x) for the values x of the checkpoint's tensor
// nextALog.
const nextDecay, nextALog = "ssm_a", "self_attn.A_log"

func (r *reader) nextConfig(c map[string]any, s *shape) {
	r.experts(c, s)
	layers := c["num_hidden_layers"].(int)
	kinds := make([]string, layers)
	heads, ok := r.meta.Ints(r.arch + ".attention.head_count_kv")
	if !ok || len(heads) < layers {
		r.missing(r.arch+".attention.head_count_kv", fmt.Sprintf("a number for each of %d layers, 0 where attention "+
			"is linear", layers))
		return
	}
	for i := range kinds {
		kinds[i] = "deepseek_sparse_attention"
		if heads[i] == 0 {
			kinds[i] = "linear_attention"
		}
	}
	pool := "attention.indexer.kpool"
	if _, ok := r.meta[r.arch+"."+pool]; !ok {
		pool = "attention.indexer.block_size" // the name that one converter uses
	}
	for field, v := range map[string]any{
		"layer_types": kinds, "qk_rope_head_dim": 0, "qk_nope_head_dim": s.nope, "index_kpool": r.count(pool),
		"hc_mult": r.count("hyper_connection.count"), "hc_eps": r.float("hyper_connection.epsilon"),
		"hc_sinkhorn_iters": r.count("hyper_connection.sinkhorn_iterations"),
		"swiglu_limit":      r.limit("swiglu_clamp_exp"), "linear_num_heads": s.heads,
		"linear_head_dim": r.count("kda.head_dim"), "linear_conv_kernel_dim": r.count("ssm.conv_kernel"),
		"linear_lower_bound": r.floatOr("kda.gate_lower_bound", -5),
	} {
		c[field] = v
	}
	r.sharedSelections(c, layers)
}

// decayOf returns the checkpoint's tensor nextALog, f32 [heads], for a tensor nextDecay of the file.
func decayOf(t *gguf.Tensor, name string) (weight.Tensor, error) {
	v, err := floats(t)
	if err != nil {
		return weight.Tensor{}, err
	}
	data := make([]byte, 0, 4*len(v))
	for i, x := range v {
		if !(x < 0) {
			return weight.Tensor{}, fmt.Errorf("tensor %s has %v for head %d, want a number below 0", t.Name, x, i)
		}
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(math.Log(-float64(x)))))
	}
	return weight.Tensor{Name: name, DType: weight.F32, Shape: []int{len(v)}, Data: data}, nil
}

// channels reshapes the taps of a convolution to the shape in the checkpoint: [channels, 1, taps].
func channels(t *weight.Tensor) {
	if n := len(t.Shape); n >= 2 {
		all := 1
		for _, d := range t.Shape {
			all *= d
		}
		t.Shape = []int{all / max(t.Shape[n-1], 1), 1, t.Shape[n-1]}
	}
}

func (p *pairs) next(c *config.Next) error {
	if c.Linear.Heads != c.Attention.Heads {
		return fmt.Errorf("%w: linear attention has %d heads and latent attention %d; GGUF holds one number",
			ErrUnsupported, c.Linear.Heads, c.Attention.Heads)
	}
	kv := make([]int32, c.Layers+c.NextN)
	for i := range kv {
		if i >= c.Layers || !c.Linear.Layers[i] {
			kv[i] = 1
		}
	}
	p.add("attention.head_count_kv", kv)
	p.count("block_count", c.Layers+c.NextN)
	p.latent(c.Attention)
	p.count("attention.indexer.kpool", c.Pool)
	p.count("kda.head_dim", c.Linear.Dim)
	p.number("kda.gate_lower_bound", float64(c.Linear.Bound))
	p.count("ssm.conv_kernel", c.Linear.Conv)
	p.count("hyper_connection.count", c.Hyper.Streams)
	p.count("hyper_connection.sinkhorn_iterations", c.Hyper.Rounds)
	p.number("hyper_connection.epsilon", float64(c.Hyper.Eps))
	limits := slices.Repeat([]float32{c.Limit}, c.Layers+c.NextN)
	p.add("swiglu_clamp_exp", limits)
	p.add("swiglu_clamp_shexp", limits)
	p.count("nextn_predict_layers", c.NextN)
	return p.experts(c.FFN)
}

// decay adds the tensor nextDecay of a layer of linear attention.
func (w *writer) decay(layer int) {
	from := w.inLayer(layer, nextALog)
	t, ok := w.from.Tensor(from)
	if !ok {
		return
	}
	w.used[from] = true
	w.out = append(w.out, tensor{name: fmt.Sprintf("blk.%d.%s", layer, nextDecay), kind: gguf.F32, shape: t.Shape,
		parts: 1, part: func(int) ([]byte, error) {
			v, err := weight.ReadF32(t)
			for i, x := range v {
				v[i] = float32(-math.Exp(float64(x)))
			}
			return encode(gguf.F32, v, nil), err
		}})
}

// nextPrefix is the prefix of the text network's tensor names in a checkpoint with a vision tower, instead of "model.".
// visionPrefix is that of the vision tower.
const nextPrefix, visionPrefix = "model.language_model.", "model.visual."

// spelled returns a tensor name with the prefix that the checkpoint uses.
func (w *writer) spelled(name string) string {
	if rest, ok := strings.CutPrefix(name, "model."); ok && w.has(nextPrefix+"embed_tokens.weight") {
		return nextPrefix + rest
	}
	return name
}
