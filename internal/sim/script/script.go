// Package script opens engines whose model generates given replies, for tests of clients.
//
// A function returns the message that follows a prompt. The message is rendered in the checkpoint's chat format and
// generated token by token. Only the weights are missing: rendering, tokenizer, scheduler, prefix cache, masks,
// sampling, parsing and streams are those of the engine. The model (internal/sim/formula) reads the prompt from the
// pages of the cache, so that a wrong page gives a wrong reply.
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

// Open opens an engine that generates replies. It uses the tokenizer and chat format of the checkpoint in c. Sequences
// have at most tokens tokens. Drafting is disabled.
func Open(ctx context.Context, c sparrow.Config, tokens int, reply Reply) (*sparrow.Engine, error) {
	p := &player{reply: reply, next: map[uint64]int32{}}
	c.CacheTokens, c.Draft = max(c.CacheTokens, tokens), spec.Off()
	c.Substitute = func(loaded model.Model) (model.Model, error) {
		return formula.New(formula.Shape{Vocab: loaded.Config().Vocab, Context: tokens, Script: p.token},
			formula.NewDevice(formula.Settings{}))
	}
	p.mu.Lock() // no token may be computed before p.engine is set
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

// player determines the next token of every sequence.
type player struct {
	reply Reply

	mu     sync.Mutex
	engine *sparrow.Engine
	end    int32            // token that ends a reply
	next   map[uint64]int32 // next token by the hash of the sequence
}

// token returns the next token of a sequence: that of a running reply, or else the first token of a new one.
func (p *player) token(hash uint64, tokens func() []int32) int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id, ok := p.next[hash]; ok {
		return id
	}
	ids, err := p.begin(tokens())
	if err != nil {
		ids = nil // an empty reply; the test fails because of it
	}
	ids = append(ids, p.end)
	at := len(tokens())
	for i, id := range ids {
		p.next[hash] = id
		hash = formula.After(hash, id, at+i)
	}
	return ids[0]
}

// begin returns the token ids of the reply to a prompt.
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

// Markers of reasoning, the same in all supported families.
const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// Text returns a message in the format in which the engine's model writes it after a prompt.
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
