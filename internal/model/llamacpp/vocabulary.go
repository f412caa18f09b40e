package llamacpp

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sparrow/internal/model/config"
	"sparrow/weight/gguf"
)

// vocabulary returns the metadata that replaces tokenizer.json and tokenizer_config.json in a GGUF file.
func (m *Model) vocabulary(c *config.Config) ([]gguf.Pair, error) {
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
		return nil, fmt.Errorf("%w: tokenizer.json holds a %q model, want BPE", ErrUnsupported, t.Model.Type)
	}
	tokens, types := make([]string, c.Vocab), make([]int32, c.Vocab)
	for i := range tokens {
		tokens[i], types[i] = fmt.Sprintf("[PAD%d]", i), unusedToken
	}
	set := func(id int, text string, kind int32) error {
		if id < 0 || id >= len(tokens) {
			return fmt.Errorf("tokenizer.json: token %q has id %d, outside the vocabulary of %d", text, id, len(tokens))
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
	more, err := m.frame(c)
	return append(pairs, more...), err
}

// mergeText returns a merge of two tokens as "a b"; tokenizer.json may contain a list of two strings instead.
func mergeText(text json.RawMessage) string {
	var pair []string
	if json.Unmarshal(text, &pair) == nil {
		return strings.Join(pair, " ")
	}
	var one string
	_ = json.Unmarshal(text, &one) // for any other form, the merge is empty, which readers of the file reject
	return one
}

// preTokenizer returns the name that GGUF files use for the regular expressions with which tokenizer.json splits text.
func preTokenizer(text json.RawMessage, vocab map[string]int) (string, error) {
	var found []string
	for _, match := range regexp.MustCompile(`"Regex":\s*("(?:[^"\\]|\\.)*")`).FindAllSubmatch(text, -1) {
		var pattern string
		if err := json.Unmarshal(match[1], &pattern); err != nil {
			return "", fmt.Errorf("tokenizer.json: %w", err)
		}
		// If no token has several digits, splitting into single digits gives the same tokens as splitting into up to
		// three digits.
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
	return "", fmt.Errorf("%w: tokenizer.json splits text by the expressions %q, which are not those of a "+
		"pre-tokenizer that GGUF has a name for", ErrUnsupported, found)
}

func joinsDigits(vocab map[string]int) bool {
	for text := range vocab {
		if len(text) > 1 && strings.Trim(text, "0123456789") == "" {
			return true
		}
	}
	return false
}

// frame returns the metadata of the tokens that begin and end a text, and of the chat template.
func (m *Model) frame(c *config.Config) ([]gguf.Pair, error) {
	var t struct {
		Template string `json:"chat_template"`
		AddBOS   *bool  `json:"add_bos_token"`
		AddEOS   *bool  `json:"add_eos_token"`
	}
	if m.TokenizerConfig != nil {
		if err := json.Unmarshal(m.TokenizerConfig, &t); err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: %w", err)
		}
	}
	var pairs []gguf.Pair
	id := func(key string, v int) {
		pairs = append(pairs, gguf.Pair{Key: "tokenizer.ggml." + key + "_token_id", Value: uint32(v)})
	}
	if c.BOS != nil {
		id("bos", *c.BOS)
	}
	for i, key := range []string{"eos", "eot", "eom"} {
		if i < len(c.EOS) {
			id(key, c.EOS[i])
		}
	}
	if c.Pad != nil {
		id("padding", *c.Pad)
	}
	if t.AddBOS != nil {
		pairs = append(pairs, gguf.Pair{Key: "tokenizer.ggml.add_bos_token", Value: *t.AddBOS})
	}
	if t.AddEOS != nil {
		pairs = append(pairs, gguf.Pair{Key: "tokenizer.ggml.add_eos_token", Value: *t.AddEOS})
	}
	if template := cmp.Or(m.ChatTemplate, t.Template); template != "" {
		pairs = append(pairs, gguf.Pair{Key: "tokenizer.chat_template", Value: template})
	}
	return pairs, nil
}
