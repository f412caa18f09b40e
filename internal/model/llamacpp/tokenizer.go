package llamacpp

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sparrow/weight/gguf"
)

// Kinds of tokens: values of tokenizer.ggml.token_type.
const (
	normalToken  = 1
	controlToken = 3
	userToken    = 4
	unusedToken  = 5
)

// splits holds the regular expressions by which text is split before tokens are merged, by the name of the
// pre-tokenizer.
var splits = map[string][]string{
	"deepseek-v3": deepseekSplits,
	"joyai-llm":   deepseekSplits, // the name that llama.cpp's converter writes for DeepSeek-V4's vocabulary
	"glm4":        {glmSplit},
	"chatglm-bpe": {glmSplit},
}

var deepseekSplits = []string{
	`\p{N}{1,3}`,
	`[一-龥぀-ゟ゠-ヿ]+`,
	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|" +
		" ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
}

const glmSplit = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` +
	`\s*[\r\n]+|\s+(?!\S)|\s+`

type object = map[string]any

// readTokenizer converts the vocabulary of a file to tokenizer.json and tokenizer_config.json. Both are nil if the file
// has no vocabulary.
func readTokenizer(path string, meta gguf.Metadata) (tokenizer, config []byte, err error) {
	model, ok := meta.Text("tokenizer.ggml.model")
	if !ok {
		return nil, nil, nil
	}
	fail := func(format string, args ...any) ([]byte, []byte, error) {
		return nil, nil, fmt.Errorf("gguf: %s: %w: %s", path, ErrUnsupported, fmt.Sprintf(format, args...))
	}
	if model != "gpt2" {
		return fail("tokenizer.ggml.model is %q, want gpt2 (byte-level BPE)", model)
	}
	pre, _ := meta.Text("tokenizer.ggml.pre")
	patterns, ok := splits[pre]
	if !ok {
		return fail("tokenizer.ggml.pre is %q, want one of %s", pre,
			strings.Join(slices.Sorted(maps.Keys(splits)), ", "))
	}
	tokens, _ := meta.Texts("tokenizer.ggml.tokens")
	merges, _ := meta.Texts("tokenizer.ggml.merges")
	types, _ := meta.Ints("tokenizer.ggml.token_type")
	if len(tokens) == 0 || len(merges) == 0 {
		return fail("tokenizer.ggml.tokens is %s and tokenizer.ggml.merges %s",
			meta.Describe("tokenizer.ggml.tokens"), meta.Describe("tokenizer.ggml.merges"))
	}
	if types != nil && len(types) != len(tokens) {
		return fail("tokenizer.ggml.token_type has %d entries for %d tokens", len(types), len(tokens))
	}
	vocab, added := make(object, len(tokens)), []object{}
	for id, token := range tokens {
		kind := int64(normalToken)
		if types != nil {
			kind = types[id]
		}
		switch kind {
		case controlToken, userToken:
			added = append(added, object{"id": id, "content": token, "single_word": false, "lstrip": false,
				"rstrip": false, "normalized": false, "special": kind == controlToken})
		case unusedToken: // padding up to the number of rows of the embedding
		default:
			if _, twice := vocab[token]; twice {
				return fail("token %q occurs twice", token)
			}
			vocab[token] = id
		}
	}
	byteLevel := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	pieces := []object{}
	for _, p := range patterns {
		pieces = append(pieces, object{"type": "Split", "pattern": object{"Regex": p}, "behavior": "Isolated",
			"invert": false})
	}
	bpe := object{"type": "BPE", "vocab": vocab, "merges": merges, "fuse_unk": false, "byte_fallback": false}
	tokenizer, err = json.Marshal(object{
		"version": "1.0", "added_tokens": added, "normalizer": nil,
		"pre_tokenizer":  object{"type": "Sequence", "pretokenizers": append(pieces, byteLevel)},
		"post_processor": byteLevel,
		"decoder":        byteLevel,
		"model":          bpe,
	})
	if err != nil {
		return nil, nil, err
	}
	config, err = json.Marshal(tokenizerConfig(meta, tokens))
	return tokenizer, config, err
}

// tokenizerConfig returns the fields of tokenizer_config.json: the tokens that begin and end a text, and the chat
// template.
func tokenizerConfig(meta gguf.Metadata, tokens []string) object {
	c := object{}
	for key, name := range map[string]string{"bos": "bos_token", "eos": "eos_token", "padding": "pad_token"} {
		if id, ok := meta.Int("tokenizer.ggml." + key + "_token_id"); ok && id >= 0 && id < int64(len(tokens)) {
			c[name] = tokens[id]
		}
	}
	for _, name := range []string{"add_bos_token", "add_eos_token"} {
		if add, ok := meta.Bool("tokenizer.ggml." + name); ok {
			c[name] = add
		}
	}
	if template, ok := meta.Text("tokenizer.chat_template"); ok {
		c["chat_template"] = template
	}
	return c
}
