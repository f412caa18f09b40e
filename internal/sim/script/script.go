// Package script opens engines whose model plays given replies, for tests of clients.
//
// A function returns a message for each prompt text; the message is written in the checkpoint's chat format and played
// token by token. Everything except the weights is real: rendering, tokenizer, scheduler, prefix cache, masks,
// sampling, parsing and streams. The model (internal/sim/formula) reads the prompt from the pages of the cache, so a
// wrong page gives a wrong reply or no reply.
package script

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"sparrow"
	"sparrow/chat"
	"sparrow/internal/model"
	"sparrow/internal/sim/formula"
	"sparrow/internal/spec"
)

// Reply returns the model's answer to a prompt. It is called once for each prompt.
type Reply func(prompt string) chat.Message

// Open opens an engine that plays replies. It uses the tokenizer and the chat format of the configuration's checkpoint;
// sequences have at most the given number of tokens. Drafting is disabled.
func Open(ctx context.Context, c sparrow.Config, tokens int, reply Reply) (*sparrow.Engine, error) {
	p := &player{reply: reply, next: map[uint64]int32{}}
	c.CacheTokens, c.Draft = max(c.CacheTokens, tokens), spec.Off()
	c.Substitute = func(loaded model.Model) (model.Model, error) {
		return formula.New(formula.Shape{Vocab: loaded.Config().Vocab, Context: tokens, Script: p.token},
			formula.NewDevice(formula.Settings{}))
	}
	p.mu.Lock() // no sequence is played before the engine is set
	defer p.mu.Unlock()
	e, err := sparrow.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	if p.engine, p.end = e, 0; e.Info().Tokenizer.EOS != "" {
		ids, err := e.Encode(e.Info().Tokenizer.EOS, false)
		if err == nil && len(ids) == 1 {
			p.end = ids[0]
			return e, nil
		}
	}
	return nil, errors.Join(errors.New("script: the tokenizer has no token that ends a reply"), e.Close(ctx))
}

// player stores which token follows each sequence of the replies in progress.
type player struct {
	reply Reply

	mu     sync.Mutex
	engine *sparrow.Engine
	end    int32            // token that ends a reply
	next   map[uint64]int32 // next token, by the hash of the sequence before it
}

// token returns the next token of a sequence: the next token of a reply in progress, or the first token of a new reply.
func (p *player) token(hash uint64, tokens func() []int32) int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id, ok := p.next[hash]; ok {
		return id
	}
	ids, err := p.begin(tokens())
	if err != nil {
		ids = nil // an empty reply, on which the client's test fails while the engine continues
	}
	ids = append(ids, p.end)
	at := len(tokens())
	for i, id := range ids {
		p.next[hash] = id
		hash = formula.After(hash, id, at+i)
	}
	return ids[0]
}

// begin returns the reply to a prompt.
func (p *player) begin(ids []int32) ([]int32, error) {
	prompt, err := p.engine.Decode(ids)
	if err != nil {
		return nil, err
	}
	text, err := Text(p.engine, prompt, p.reply(prompt))
	if err != nil {
		return nil, err
	}
	return p.engine.Encode(text, false)
}

// Markers of reasoning, which are equal in all families.
const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// Text returns a message as the engine's model would write it after a prompt.
func Text(e *sparrow.Engine, prompt string, m chat.Message) (string, error) {
	off := false
	question := []chat.Message{{Role: chat.User, Content: "?"}}
	before, _, err := e.Render(&chat.Request{Messages: question, Thinking: &off, AddGenerationPrompt: true})
	if err != nil {
		return "", err
	}
	reasoning := m.Reasoning
	m.Role, m.Reasoning = chat.Assistant, ""
	whole, _, err := e.Render(&chat.Request{Messages: append(question, m), Thinking: &off})
	if err != nil {
		return "", err
	}
	text, ok := strings.CutPrefix(whole, before)
	if !ok {
		return "", fmt.Errorf("script: the format %s does not continue a prompt with the reply", e.Info().ChatFormat)
	}
	if strings.HasSuffix(prompt, thinkOpen) {
		text = reasoning + thinkClose + text
	}
	return text, nil
}
