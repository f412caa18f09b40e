// Package llamacpp reads and writes GGUF models in the form in which llama.cpp's converter writes them.
//
// Reading returns the contents that a checkpoint folder would have: config.json, tokenizer.json, tokenizer_config.json,
// and tensors with the names of the original checkpoint. They are then checked and loaded like those of a folder.
// Tensors are views of the mapped file, except the up-projection of latent rows, which GGUF files store in two parts.
// Writing does the reverse, with weights in a chosen mix of formats.
package llamacpp

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"sparrow/internal/model/config"
	"sparrow/weight/gguf"
)

// ErrUnsupported is wrapped if a file contains a model that is not supported.
var ErrUnsupported = errors.New("unsupported GGUF model")

// architectures are the model types of the architectures that llama.cpp's converter writes. All models with MLA and no
// indexer have the same architecture; denseFamily distinguishes them.
var architectures = map[string]string{"deepseek32": "deepseek_v32", "glm-dsa": "glm_moe_dsa",
	"deepseek4": "deepseek_v4", "glm5next": "glm5_next", denseArchitecture: "deepseek_v3"}

const denseArchitecture = "deepseek2"

// architectureOf returns the architecture of a family in GGUF files; empty if there is none.
func architectureOf(f config.Family) string {
	if f.Dense() {
		return denseArchitecture
	}
	for arch, family := range architectures {
		if family == string(f) {
			return arch
		}
	}
	return ""
}

// CheckArchitecture returns an error if the value of general.architecture is not supported.
func CheckArchitecture(arch string) error {
	if architectures[arch] != "" {
		return nil
	}
	if isHead(arch) {
		return fmt.Errorf("%w: general.architecture is %q, a draft head without its model: put it into the folder of "+
			"the GGUF file of DeepSeek-V4, with dspark or dflash in its name, and open the model's file; want a head "+
			"of %s",
			ErrUnsupported, arch, dialects())
	}
	return fmt.Errorf("%w: general.architecture is %q, want one of %s: files of DeepSeek-V3.2, GLM-5, "+
		"GLM-5.3-Flash and DeepSeek-V4 that hold the indexer, and of DeepSeek-V3, Kimi-K2 and GLM-4.7-Flash",
		ErrUnsupported, arch, strings.Join(slices.Sorted(maps.Keys(architectures)), ", "))
}

// denseFamily distinguishes the models whose architecture is deepseek2 by the pre-tokenizer. They differ only in their
// chat formats: other metadata describes their networks.
func denseFamily(meta gguf.Metadata) string {
	switch pre, _ := meta.Text("tokenizer.ggml.pre"); pre {
	case "kimi-k2":
		return string(config.KimiK2)
	case "glm4":
		return string(config.GLM4MoeLite)
	}
	return string(config.DeepseekV3)
}

// shape holds the values that determine the names and sizes of tensors.
type shape struct {
	names   *names
	experts int
	// Sizes of the up-projections of latent rows, which DeepSeek-V4 does not have.
	heads, nope, v, latent int
}

// reader reads values of one architecture from the metadata and collects the names of missing values.
type reader struct {
	meta     gguf.Metadata
	arch     string
	problems []string
}

func (r *reader) missing(key, want string) {
	r.problems = append(r.problems, fmt.Sprintf("%s is %s, want %s", key, r.meta.Describe(key), want))
}

// count reads a size that is required.
func (r *reader) count(name string) int {
	key := r.arch + "." + name
	n, ok := r.meta.Int(key)
	if !ok || n < 0 || n > 1<<31 {
		r.missing(key, "a number up to 2^31")
		return 0
	}
	return int(n)
}

// optional returns a size that may be missing.
func (r *reader) optional(name string, absent int) int {
	if _, ok := r.meta[r.arch+"."+name]; !ok {
		return absent
	}
	return r.count(name)
}

func (r *reader) float(name string) float64 {
	key := r.arch + "." + name
	v, ok := r.meta.Float(key)
	if !ok {
		r.missing(key, "a number")
	}
	return v
}

func (r *reader) floatOr(name string, absent float64) float64 {
	if _, ok := r.meta[r.arch+"."+name]; !ok {
		return absent
	}
	return r.float(name)
}

// readConfig returns config.json of the model, and the sizes of its tensors. side is a draft head in a file next to the
// model's file, or nil.
func readConfig(path string, meta gguf.Metadata, side *sidecar) ([]byte, *shape, error) {
	arch, ok := meta.Text("general.architecture")
	if err := CheckArchitecture(arch); !ok || err != nil {
		return nil, nil, fmt.Errorf("gguf: %s: %w", path, err)
	}
	family := architectures[arch]
	if arch == denseArchitecture {
		family = denseFamily(meta)
	}
	r := &reader{meta: meta, arch: arch}
	s := &shape{}
	normalize, _ := meta.Bool(arch + ".expert_weights_norm")
	c := map[string]any{
		"model_type": family, "vocab_size": r.vocabulary(), "hidden_size": r.count("embedding_length"),
		"max_position_embeddings": r.count("context_length"),
		"rms_norm_eps":            r.float("attention.layer_norm_rms_epsilon"),
		"norm_topk_prob":          normalize,
	}
	if arch != denseArchitecture {
		c["index_n_heads"], c["index_head_dim"] = r.count("attention.indexer.head_count"),
			r.count("attention.indexer.key_length")
		c["index_topk"] = r.count("attention.indexer.top_k")
	}
	switch family {
	case string(config.DeepseekV4):
		s.names = v4Names
		r.v4Config(c, s)
		if side != nil {
			side.describe(r, c)
		}
	case string(config.GLM5Next):
		s.names = nextNames
		r.nextConfig(c, s)
	default:
		s.names = dsaNames
		r.dsaConfig(c, s)
	}
	r.tokenIDs(c)
	if len(r.problems) > 0 {
		return nil, nil, fmt.Errorf("gguf: %s: %w: %d problems in the metadata:\n  %s", path, gguf.ErrMalformed,
			len(r.problems), strings.Join(r.problems, "\n  "))
	}
	text, err := json.Marshal(c)
	return text, s, err
}

// dsaConfig adds the fields of config.json of DeepSeek-V3.2 and GLM-5.
func (r *reader) dsaConfig(c map[string]any, s *shape) {
	r.experts(c, s)
	rope := r.count("rope.dimension_count")
	s.nope -= rope
	c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["rope_theta"] = s.nope, rope, r.float("rope.freq_base")
	r.ropeScaling(c)
	r.sharedSelections(c, c["num_hidden_layers"].(int))
}

// experts adds the fields of all models with latent rows: sizes of attention and of feed-forward blocks. It sets nope
// of the shape to the size of a whole key head.
func (r *reader) experts(c map[string]any, s *shape) {
	nextN := r.optional("nextn_predict_layers", 0)
	layers := r.count("block_count") - nextN
	s.heads = r.count("attention.head_count")
	s.v, s.latent = r.count("attention.value_length_mla"), r.count("attention.kv_lora_rank")
	s.experts = r.count("expert_count")
	s.nope = r.count("attention.key_length_mla")
	for field, v := range map[string]any{
		"num_hidden_layers": layers, "num_nextn_predict_layers": nextN, "intermediate_size": r.denseInner(),
		"moe_intermediate_size": r.count("expert_feed_forward_length"), "num_attention_heads": s.heads,
		"q_lora_rank": r.queryRank(), "kv_lora_rank": s.latent, "v_head_dim": s.v, "n_routed_experts": s.experts,
		"n_shared_experts":      r.optional("expert_shared_count", 0),
		"num_experts_per_tok":   r.count("expert_used_count"),
		"first_k_dense_replace": r.optional("leading_dense_block_count", 0),
		"n_group":               r.optional("expert_group_count", 1),
		"topk_group":            r.optional("expert_group_used_count", 1),
		"routed_scaling_factor": r.floatOr("expert_weights_scale", 1),
	} {
		c[field] = v
	}
	r.gate(sigmoidGate, "sigmoid")
}

// queryRank returns the rank of the query projection, or nil for null, if the file does not have it and the model has
// no indexer.
func (r *reader) queryRank() any {
	if n := r.optional("attention.q_lora_rank", 0); n > 0 || r.arch != denseArchitecture {
		return r.count("attention.q_lora_rank")
	}
	return nil
}

// sigmoidGate is the value for sigmoid routing in GGUF metadata.
const sigmoidGate = 2

// softmaxGate is the value for softmax routing in GGUF metadata.
const softmaxGate = 1

// gate checks that the file has the expected function for scores of experts.
func (r *reader) gate(want int, name string) {
	absent := want
	if r.arch == denseArchitecture {
		absent = softmaxGate // files of DeepSeek-V2, which have the same architecture
	}
	if gate := r.optional("expert_gating_func", absent); gate != want {
		r.problems = append(r.problems, fmt.Sprintf("%s.expert_gating_func is %d, want %d (%s)", r.arch, gate,
			want, name))
	}
}

// vocabulary returns the number of rows of the embedding.
func (r *reader) vocabulary() int {
	if tokens, ok := r.meta.Texts("tokenizer.ggml.tokens"); ok {
		return r.optional("vocab_size", len(tokens))
	}
	return r.count("vocab_size")
}

// denseInner returns the inner size of dense blocks. The metadata has one number, or a list with a number for every
// layer.
func (r *reader) denseInner() int {
	if list, ok := r.meta.Ints(r.arch + ".feed_forward_length"); ok && len(list) > 0 {
		return int(list[0])
	}
	return r.count("feed_forward_length")
}

// ropeScaling adds the YaRN parameters. The file has a tenth of mscale_all_dim; in released models mscale equals
// mscale_all_dim.
func (r *reader) ropeScaling(c map[string]any) {
	kind, _ := r.meta.Text(r.arch + ".rope.scaling.type")
	switch kind {
	case "", "none":
	case "yarn":
		all := math.Round(1e6*r.floatOr("rope.scaling.yarn_log_multiplier", 0)) / 1e5 // stored as a float32
		c["rope_scaling"] = map[string]any{"type": "yarn", "factor": r.float("rope.scaling.factor"),
			"original_max_position_embeddings": r.count("rope.scaling.original_context_length"),
			"beta_fast":                        r.floatOr("rope.scaling.yarn_beta_fast", 32),
			"beta_slow":                        r.floatOr("rope.scaling.yarn_beta_slow", 1),
			"mscale":                           all, "mscale_all_dim": all}
	default:
		r.problems = append(r.problems, fmt.Sprintf("%s.rope.scaling.type is %q, want none or yarn", r.arch,
			kind))
	}
}

// sharedSelections adds the list of layers that reuse a selection. The file has true for each layer with an indexer,
// also for drafting layers.
func (r *reader) sharedSelections(c map[string]any, layers int) {
	key := r.arch + ".attention.indexer.types"
	v, given := r.meta[key]
	if !given {
		return
	}
	full, ok := v.([]bool)
	if !ok || len(full) < layers {
		r.missing(key, fmt.Sprintf("a bool for each of %d layers", layers))
		return
	}
	words := make([]string, layers)
	for i := range words {
		words[i] = "shared"
		if full[i] {
			words[i] = "full"
		}
	}
	c["indexer_types"] = words
}

// tokenIDs adds the ids of the tokens that begin and end a text. Chat models may have a separate token that ends a
// turn.
func (r *reader) tokenIDs(c map[string]any) {
	if id, ok := r.meta.Int("tokenizer.ggml.bos_token_id"); ok {
		c["bos_token_id"] = id
	}
	if id, ok := r.meta.Int("tokenizer.ggml.padding_token_id"); ok {
		c["pad_token_id"] = id
	}
	var ends []int64
	for _, name := range []string{"eos", "eot", "eom"} {
		if id, ok := r.meta.Int("tokenizer.ggml." + name + "_token_id"); ok && !slices.Contains(ends, id) {
			ends = append(ends, id)
		}
	}
	if len(ends) > 0 {
		c["eos_token_id"] = ends
	}
}
