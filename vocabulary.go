package sparrow

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sparrow/chat"
	"sparrow/engine"
	"sparrow/grammar"
	"sparrow/internal/model/config"
	"sparrow/tokenizer"
)

// mostWithoutText: a warning is given if more than 1/mostWithoutText of the ids have no text. In released models these
// are a few percent, and they are never chosen; a model with random weights chooses any id.
const mostWithoutText = 10

// prepareText sets the tokenizer, the chat format and the grammar's vocabulary of the engine.
func (e *Engine) prepareText(p *parts) error {
	if p.tokenizer == nil {
		return nil
	}
	if n, v := p.tokenizer.VocabSize(), e.info.Vocabulary; n > v {
		return fmt.Errorf("sparrow: the tokenizer has %d tokens, but the model's vocabulary has only %d; use the "+
			"tokenizer of the same release", n, v)
	}
	if n, v := p.tokenizer.VocabSize(), e.info.Vocabulary; v-n > v/mostWithoutText {
		e.cfg.Warn(fmt.Sprintf("the model's vocabulary is larger than the tokenizer's: %d of %d ids have no text, so "+
			"answers may be empty", v-n, v))
	}
	src := chat.Source{Family: e.cfg.ChatFormat, ModelType: string(p.source.Config.Family),
		ChatTemplate: p.tokenizer.ChatTemplate(), Now: time.Now,
		SharedIndexer: slices.Contains(p.source.Config.Indexer.Shared, true), Encoder: p.encoder,
		Name: p.source.Name}
	if v4, ok := p.source.Model.(*config.V4); ok {
		src.DSpark = v4.DSpark != nil
	}
	var err error
	if len(p.tokenizerConfig) > 0 {
		if err := src.ReadTokenizerConfig(p.tokenizerConfig); err != nil {
			return err
		}
	}
	if e.info.Tokenizer, err = describeTokenizer(p, &src); err != nil {
		return err
	}
	for id := range int32(p.tokenizer.VocabSize()) {
		if p.tokenizer.IsAdded(id) {
			src.Tokens = append(src.Tokens, p.tokenizer.Text(id))
		}
	}
	f, err := chat.Detect(src)
	switch {
	case err == nil:
		e.format, e.info.ChatFormat, e.info.Efforts = f, f.Name(), efforts(f)
		e.info.AlwaysThinks, e.developers = alwaysThinks(f), knowsDevelopers(f, src.ChatTemplate)
		e.prepareCalls(p.tokenizer)
		for _, text := range chat.ReplyMarkers(f) {
			if id, ok := p.tokenizer.TokenID(text); ok {
				e.replyMarkers = append(e.replyMarkers, id)
			}
		}
	case errors.Is(err, chat.ErrNoFormat) && e.cfg.ChatFormat == "":
		e.cfg.Log.Info("no chat format; only prompts can be completed", "reason", err)
	case errors.Is(err, chat.ErrTemplate):
		err = fmt.Errorf("sparrow: %s: %w; correct the template: chat_template.jinja or tokenizer_config.json in a "+
			"folder, tokenizer.chat_template in a GGUF file; 'sparrow run --raw', or PromptsOnly in Go, completes "+
			"prompts without it", p.source.Name, err)
		if !e.cfg.PromptsOnly {
			return err
		}
		e.noChat = err
	default:
		return err
	}
	e.grammar, err = grammar.NewTokens(vocabulary{p.tokenizer, e.info.Vocabulary, e.eos})
	if err != nil {
		// Text can still be generated without constraints if the tokens of the vocabulary cannot spell JSON.
		e.cfg.Log.Info("constrained output is not available", "reason", err)
	}
	return nil
}

// efforts returns the levels of reasoning effort that a format accepts.
func efforts(f chat.Format) []string {
	var known []string
	on := true
	for _, word := range []string{"minimal", "low", "medium", "high", "xhigh", "max"} {
		_, err := f.Render(chat.Request{Messages: []chat.Message{{Role: chat.User, Content: "?"}}, Thinking: &on,
			Effort: word, AddGenerationPrompt: true})
		if err == nil {
			known = append(known, word)
		}
	}
	return known
}

// describeTokenizer returns the properties of a tokenizer for clients; src contains its parsed configuration.
func describeTokenizer(p *parts, src *chat.Source) (engine.Tokenizer, error) {
	t := engine.Tokenizer{BOS: src.BOS, EOS: src.EOS, Pad: src.Special["pad_token"], Unk: src.Special["unk_token"],
		ChatTemplate: src.ChatTemplate}
	if t.EOS == "" {
		if id, ok := p.tokenizer.EOS(); ok {
			t.EOS = p.tokenizer.Text(id)
		}
	}
	if len(p.tokenizerConfig) == 0 {
		return t, nil
	}
	var c struct {
		Class   string `json:"tokenizer_class"`
		AddsBOS bool   `json:"add_bos_token"`
	}
	if err := json.Unmarshal(p.tokenizerConfig, &c); err != nil {
		return t, fmt.Errorf("sparrow: tokenizer_config.json: %w", err)
	}
	t.Class, t.AddsBOS = c.Class, c.AddsBOS
	return t, nil
}

// knowsDevelopers reports whether a format supports messages of the developer role. Templates ignore messages of
// unknown roles.
func knowsDevelopers(f chat.Format, template string) bool {
	if _, ok := f.(*chat.Template); ok {
		return strings.Contains(template, string(chat.Developer))
	}
	_, err := f.Render(chat.Request{Messages: []chat.Message{{Role: chat.Developer, Content: "?"}}})
	return err == nil
}

// alwaysThinks reports whether replies of a chat format begin with reasoning even if reasoning is disabled.
func alwaysThinks(f chat.Format) bool {
	off := false
	p, err := f.Render(chat.Request{Messages: []chat.Message{{Role: chat.User, Content: "?"}}, Thinking: &off,
		AddGenerationPrompt: true})
	return err == nil && p.InReasoning
}

// vocabulary adapts a tokenizer to package grammar. Ids that pad the model's vocabulary have no text.
type vocabulary struct {
	*tokenizer.Tokenizer
	size int
	eos  []int32
}

func (v vocabulary) Size() int { return v.size }

func (v vocabulary) Bytes(id int32) []byte {
	if int(id) >= v.VocabSize() {
		return nil
	}
	return v.Tokenizer.Bytes(id)
}

func (v vocabulary) IsSpecial(id int32) bool {
	return int(id) >= v.VocabSize() || v.Tokenizer.IsSpecial(id) || v.IsAdded(id)
}

func (v vocabulary) EOS() []int32 { return v.eos }

// endTokens returns all end-of-sequence ids, from the config, the generation config and the tokenizer.
func endTokens(c *config.Config, generation []byte, t *tokenizer.Tokenizer) []int32 {
	var out []int32
	add := func(id int) {
		if id >= 0 && id < c.Vocab && !slices.Contains(out, int32(id)) {
			out = append(out, int32(id))
		}
	}
	for _, id := range c.EOS {
		add(id)
	}
	var one struct {
		EOS json.RawMessage `json:"eos_token_id"`
	}
	if json.Unmarshal(generation, &one) == nil {
		var list []int
		var single int
		if json.Unmarshal(one.EOS, &list) == nil {
			for _, id := range list {
				add(id)
			}
		} else if json.Unmarshal(one.EOS, &single) == nil {
			add(single)
		}
	}
	if t != nil {
		if id, ok := t.EOS(); ok {
			add(int(id))
		}
	}
	return out
}
