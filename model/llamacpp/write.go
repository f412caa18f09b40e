package llamacpp

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"

	"sparrow/internal/num"
	"sparrow/model/config"
	"sparrow/weight"
	"sparrow/weight/gguf"
)

// Model is what Write writes: a checkpoint of the DSA families.
type Model struct {
	Name            string
	Config          *config.DSA
	Weights         *weight.Checkpoint
	Tokenizer       []byte // tokenizer.json; nil writes no vocabulary
	TokenizerConfig []byte // tokenizer_config.json, or nil
	ChatTemplate    string // instead of the one in tokenizer_config.json
}

// Write writes a model as one GGUF file. onTensor, when not nil, is called before each tensor with its number, the
// number of all tensors and its name. ctx is checked there too.
func Write(ctx context.Context, path string, m *Model, mix Mix, onTensor func(done, total int, name string)) error {
	pairs, err := m.metadata(mix)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	sources, err := m.sources(mix)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	for i := range sources {
		write := sources[i].Write
		sources[i].Write = func(w io.Writer) error {
			if onTensor != nil {
				onTensor(i, len(sources), sources[i].Name)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			return write(w)
		}
	}
	return gguf.Create(path, pairs, sources)
}

// metadata are the pairs of the architecture and of the vocabulary.
func (m *Model) metadata(mix Mix) ([]gguf.Pair, error) {
	c := m.Config
	arch := ""
	for a, family := range architectures {
		if family == string(c.Family) {
			arch = a
		}
	}
	var pairs []gguf.Pair
	add := func(key string, v any) { pairs = append(pairs, gguf.Pair{Key: key, Value: v}) }
	count := func(key string, n int) { add(arch+"."+key, uint32(n)) }
	number := func(key string, v float64) { add(arch+"."+key, float32(v)) }
	add("general.architecture", arch)
	add("general.type", "model")
	add("general.name", m.Name)
	add("general.file_type", mix.fileType())
	add("general.quantization_version", uint32(2))
	count("block_count", c.Layers+c.NextN)
	count("context_length", c.MaxPositions)
	count("embedding_length", c.Hidden)
	count("feed_forward_length", c.FFN.DenseInner)
	count("vocab_size", c.Vocab)
	count("attention.head_count", c.Attention.Heads)
	count("attention.head_count_kv", 1) // one latent head; the file stores the up-projections
	number("attention.layer_norm_rms_epsilon", float64(c.RMSEps))
	count("attention.q_lora_rank", c.Attention.QLora)
	count("attention.kv_lora_rank", c.Attention.Latent)
	count("attention.key_length", c.Attention.Latent+c.Attention.Rope)
	count("attention.value_length", c.Attention.Latent)
	count("attention.key_length_mla", c.Attention.QK())
	count("attention.value_length_mla", c.Attention.V)
	count("attention.indexer.head_count", c.Indexer.Heads)
	count("attention.indexer.key_length", c.Indexer.Dim)
	count("attention.indexer.top_k", c.Indexer.TopK)
	if slices.Contains(c.Indexer.Shared, true) {
		full := make([]bool, c.Layers)
		for i := range full {
			full[i] = c.Indexer.Computes(i)
		}
		add(arch+".attention.indexer.types", full)
	}
	count("rope.dimension_count", c.Attention.Rope)
	number("rope.freq_base", c.Rope.Theta)
	if y := c.Rope.Yarn; y != nil {
		if y.MScale != y.MScaleAllDim {
			return nil, fmt.Errorf("%w: rope_scaling has mscale %v and mscale_all_dim %v, and the format holds one "+
				"number", ErrUnsupported, y.MScale, y.MScaleAllDim)
		}
		add(arch+".rope.scaling.type", "yarn")
		number("rope.scaling.factor", y.Factor)
		count("rope.scaling.original_context_length", y.Original)
		number("rope.scaling.yarn_beta_fast", y.BetaFast)
		number("rope.scaling.yarn_beta_slow", y.BetaSlow)
		number("rope.scaling.yarn_log_multiplier", 0.1*y.MScaleAllDim)
	}
	f := c.FFN
	dense := 0
	for dense < len(f.Dense) && f.Dense[dense] {
		dense++
	}
	if slices.Contains(f.Dense[dense:], true) {
		return nil, fmt.Errorf("%w: dense layers behind layers with experts", ErrUnsupported)
	}
	count("leading_dense_block_count", dense)
	count("expert_count", f.Experts)
	count("expert_used_count", f.TopK)
	count("expert_shared_count", f.Shared)
	count("expert_feed_forward_length", f.Inner)
	count("expert_group_count", f.Groups)
	count("expert_group_used_count", f.KeepGroups)
	count("expert_gating_func", sigmoidGate)
	number("expert_weights_scale", float64(f.Scale))
	add(arch+".expert_weights_norm", f.Normalize)
	count("nextn_predict_layers", c.NextN)
	words, err := m.vocabulary()
	return append(pairs, words...), err
}

// sources are the tensors in the order of the file.
func (m *Model) sources(mix Mix) ([]gguf.Source, error) {
	w := &writer{m: m, mix: mix, used: map[string]bool{}}
	for name, from := range outside {
		w.plain(name, from, -1)
	}
	for layer := range m.Config.Layers + m.Config.NextN {
		w.layer(layer)
	}
	for _, name := range m.Weights.Names() {
		if !w.used[name] && !strings.HasSuffix(name, "_scale_inv") && !strings.HasSuffix(name, "rotary_emb.inv_freq") {
			w.errs = append(w.errs, fmt.Errorf("%w: tensor %s has no place in the format", ErrUnsupported, name))
		}
	}
	slices.SortStableFunc(w.out, func(a, b gguf.Source) int {
		if c := layerOf(a.Name) - layerOf(b.Name); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return w.out, errors.Join(w.errs...)
}

// layerOf sorts tensors outside of layers first.
func layerOf(name string) int {
	layer := -1
	_, _ = fmt.Sscanf(name, "blk.%d.", &layer)
	return layer
}

// writer collects the tensors of a file.
type writer struct {
	m    *Model
	mix  Mix
	used map[string]bool
	out  []gguf.Source
	errs []error
}

// plain adds a tensor that keeps its shape, if the checkpoint has it.
func (w *writer) plain(name, from string, layer int) {
	t, ok := w.m.Weights.Tensor(from)
	if !ok {
		return
	}
	w.used[from] = true
	if len(t.Shape) == 1 {
		w.add(name, gguf.F32, t.Shape, func(emit emitter) error {
			v, err := weight.ReadF32(t)
			return errors.Join(err, emit(v))
		})
		return
	}
	x, err := w.m.Weights.Matrix(from)
	if err != nil {
		w.errs = append(w.errs, err)
		return
	}
	w.add(name, w.typeOf(name, layer, x.Cols), []int{x.Rows, x.Cols}, func(emit emitter) error {
		v, err := x.ReadF32()
		return errors.Join(err, emit(v))
	})
}

func (w *writer) typeOf(name string, layer, cols int) gguf.Type {
	return w.mix.typeOf(name, layer, w.m.Config.Layers+w.m.Config.NextN, cols)
}

// layer adds the tensors of one layer.
func (w *writer) layer(layer int) {
	blk, prefix := fmt.Sprintf("blk.%d.", layer), fmt.Sprintf("model.layers.%d.", layer)
	for name, from := range inLayer {
		w.plain(blk+name, prefix+from, layer)
	}
	w.latent(blk, prefix, layer)
	for name, from := range fused {
		w.fuse(blk+name, prefix+"mlp.experts.%d."+from+".weight", layer)
	}
}

// fuse adds one tensor [experts, out, in] of the matrices of all experts.
func (w *writer) fuse(name, pattern string, layer int) {
	if _, ok := w.m.Weights.Tensor(fmt.Sprintf(pattern, 0)); !ok {
		return
	}
	list := make([]weight.Matrix, w.m.Config.FFN.Experts)
	for e := range list {
		from := fmt.Sprintf(pattern, e)
		w.used[from] = true
		x, err := w.m.Weights.Matrix(from)
		if err == nil && (x.Rows != list[0].Rows || x.Cols != list[0].Cols) && e > 0 {
			err = fmt.Errorf("%s is [%d %d], the first expert's is [%d %d]", from, x.Rows, x.Cols, list[0].Rows,
				list[0].Cols)
		}
		if err != nil {
			w.errs = append(w.errs, err)
			return
		}
		list[e] = x
	}
	shape := []int{len(list), list[0].Rows, list[0].Cols}
	w.add(name, w.typeOf(name, layer, list[0].Cols), shape, func(emit emitter) error {
		for _, x := range list {
			v, err := x.ReadF32()
			if err = errors.Join(err, emit(v)); err != nil {
				return err
			}
		}
		return nil
	})
}

// latent adds the two parts of the up-projection of latent rows: keys transposed to [heads, latent, nope], values
// [heads, v, latent].
func (w *writer) latent(blk, prefix string, layer int) {
	from := prefix + "self_attn.kv_b_proj.weight"
	if _, ok := w.m.Weights.Tensor(from); !ok {
		return
	}
	w.used[from] = true
	x, err := w.m.Weights.Matrix(from)
	a := w.m.Config.Attention
	if err == nil && (x.Rows != a.Heads*(a.Nope+a.V) || x.Cols != a.Latent) {
		err = fmt.Errorf("%s is [%d %d], want [%d %d]", from, x.Rows, x.Cols, a.Heads*(a.Nope+a.V), a.Latent)
	}
	if err != nil {
		w.errs = append(w.errs, err)
		return
	}
	head := (a.Nope + a.V) * a.Latent
	w.add(blk+keyPart, w.typeOf(blk+keyPart, layer, a.Nope), []int{a.Heads, a.Latent, a.Nope},
		func(emit emitter) error {
			all, err := x.ReadF32()
			out := make([]float32, 0, a.Heads*a.Latent*a.Nope)
			for h := range a.Heads {
				for l := range a.Latent {
					for n := range a.Nope {
						out = append(out, all[h*head+n*a.Latent+l])
					}
				}
			}
			return errors.Join(err, emit(out))
		})
	w.add(blk+valuePart, w.typeOf(blk+valuePart, layer, a.Latent), []int{a.Heads, a.V, a.Latent},
		func(emit emitter) error {
			all, err := x.ReadF32()
			out := make([]float32, 0, a.Heads*a.V*a.Latent)
			for h := range a.Heads {
				out = append(out, all[h*head+a.Nope*a.Latent:(h+1)*head]...)
			}
			return errors.Join(err, emit(out))
		})
}

// emitter writes values in the type of their tensor. It may be called several times.
type emitter func([]float32) error

// add adds a tensor whose values are produced when they are written.
func (w *writer) add(name string, t gguf.Type, shape []int, values func(emitter) error) {
	w.out = append(w.out, gguf.Source{Name: name, Type: t, Shape: shape, Write: func(to io.Writer) error {
		return values(func(v []float32) error {
			_, err := to.Write(encode(t, v))
			return err
		})
	}})
}

// encode is values in a type.
func encode(t gguf.Type, v []float32) []byte {
	if f, ok := t.Block(); ok {
		out := make([]byte, len(v)/f.Values()*f.Bytes())
		f.Encode(out, v)
		return out
	}
	if t == gguf.BF16 {
		out := make([]byte, 0, 2*len(v))
		for _, x := range v {
			out = binary.LittleEndian.AppendUint16(out, num.BF16(x))
		}
		return out
	}
	out := make([]byte, 0, 4*len(v))
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

// vocabulary are the pairs of tokenizer.json and tokenizer_config.json.
func (m *Model) vocabulary() ([]gguf.Pair, error) {
	if m.Tokenizer == nil {
		return nil, nil
	}
	var t struct {
		Model struct {
			Type   string
			Vocab  map[string]int
			Merges []json.RawMessage
		}
		Added []struct {
			ID      int
			Content string
			Special bool
		} `json:"added_tokens"`
		Pre json.RawMessage `json:"pre_tokenizer"`
	}
	if err := json.Unmarshal(m.Tokenizer, &t); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	if t.Model.Type != "BPE" {
		return nil, fmt.Errorf("%w: tokenizer.json holds a %q model, supported is BPE", ErrUnsupported, t.Model.Type)
	}
	tokens, types := make([]string, m.Config.Vocab), make([]int32, m.Config.Vocab)
	for i := range tokens {
		tokens[i], types[i] = fmt.Sprintf("[PAD%d]", i), unusedToken
	}
	set := func(id int, text string, kind int32) error {
		if id < 0 || id >= len(tokens) {
			return fmt.Errorf("tokenizer.json: token %q has id %d of a vocabulary of %d", text, id, len(tokens))
		}
		tokens[id], types[id] = text, kind
		return nil
	}
	var errs []error
	for text, id := range t.Model.Vocab {
		errs = append(errs, set(id, text, normalToken))
	}
	for _, a := range t.Added {
		kind := int32(userToken)
		if a.Special {
			kind = controlToken
		}
		errs = append(errs, set(a.ID, a.Content, kind))
	}
	merges := make([]string, len(t.Model.Merges))
	for i, text := range t.Model.Merges {
		merges[i] = mergeText(text)
	}
	pre, err := preTokenizer(t.Pre, t.Model.Vocab)
	if err = errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	pairs := []gguf.Pair{{Key: "tokenizer.ggml.model", Value: "gpt2"}, {Key: "tokenizer.ggml.pre", Value: pre},
		{Key: "tokenizer.ggml.tokens", Value: tokens}, {Key: "tokenizer.ggml.token_type", Value: types},
		{Key: "tokenizer.ggml.merges", Value: merges}}
	more, err := m.frame()
	return append(pairs, more...), err
}

// mergeText is a merge as "a b", which tokenizer.json may write as a pair.
func mergeText(text json.RawMessage) string {
	var pair []string
	if json.Unmarshal(text, &pair) == nil {
		return strings.Join(pair, " ")
	}
	var one string
	_ = json.Unmarshal(text, &one) // neither leaves an empty merge, which the reader refuses
	return one
}

// preTokenizer names the expressions by which tokenizer.json cuts text.
func preTokenizer(text json.RawMessage, vocab map[string]int) (string, error) {
	var found []string
	for _, match := range regexp.MustCompile(`"Regex":\s*("(?:[^"\\]|\\.)*")`).FindAllSubmatch(text, -1) {
		var pattern string
		if err := json.Unmarshal(match[1], &pattern); err != nil {
			return "", fmt.Errorf("tokenizer.json: %w", err)
		}
		// Single digits are cut as runs of up to three are where no token joins digits.
		if pattern == `\p{N}` && !joinsDigits(vocab) {
			pattern = deepseekSplits[0]
		}
		found = append(found, pattern)
	}
	for _, name := range []string{"deepseek-v3", "glm4"} {
		if slices.Equal(found, splits[name]) {
			return name, nil
		}
	}
	return "", fmt.Errorf("%w: tokenizer.json cuts text by %q, which the format has no name for", ErrUnsupported, found)
}

func joinsDigits(vocab map[string]int) bool {
	for text := range vocab {
		if len(text) > 1 && strings.Trim(text, "0123456789") == "" {
			return true
		}
	}
	return false
}

// frame are the tokens that begin and end a text, and the chat template.
func (m *Model) frame() ([]gguf.Pair, error) {
	var c struct {
		Template string `json:"chat_template"`
		AddBOS   *bool  `json:"add_bos_token"`
		AddEOS   *bool  `json:"add_eos_token"`
	}
	if m.TokenizerConfig != nil {
		if err := json.Unmarshal(m.TokenizerConfig, &c); err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: %w", err)
		}
	}
	var pairs []gguf.Pair
	id := func(key string, v int) {
		pairs = append(pairs, gguf.Pair{Key: "tokenizer.ggml." + key + "_token_id", Value: uint32(v)})
	}
	if m.Config.BOS != nil {
		id("bos", *m.Config.BOS)
	}
	for i, key := range []string{"eos", "eot", "eom"} {
		if i < len(m.Config.EOS) {
			id(key, m.Config.EOS[i])
		}
	}
	if m.Config.Pad != nil {
		id("padding", *m.Config.Pad)
	}
	if c.AddBOS != nil {
		pairs = append(pairs, gguf.Pair{Key: "tokenizer.ggml.add_bos_token", Value: *c.AddBOS})
	}
	if c.AddEOS != nil {
		pairs = append(pairs, gguf.Pair{Key: "tokenizer.ggml.add_eos_token", Value: *c.AddEOS})
	}
	if template := cmp.Or(m.ChatTemplate, c.Template); template != "" {
		pairs = append(pairs, gguf.Pair{Key: "tokenizer.chat_template", Value: template})
	}
	return pairs, nil
}
