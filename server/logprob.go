package server

import (
	"slices"
	"strings"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/sample"
)

// spelling returns the bytes of tokens by id, with a cache, because the same alternatives are frequent.
type spelling struct {
	engine Engine
	known  map[int32]string
	ids    bool // whether tokens are written as ids
}

func newSpelling(e Engine, ids bool) *spelling { return &spelling{e, map[int32]string{}, ids} }

// show returns a token as written in logprobs: its id if ids are requested, otherwise name applied to its bytes.
func (s *spelling) show(id int32, text string, name func([]byte) string) string {
	if s.ids {
		return openai.TokenID(id)
	}
	return name([]byte(text))
}

// of returns the bytes of a token id, or "" for an id without a token.
func (s *spelling) of(id int32) string {
	text, ok := s.known[id]
	if !ok {
		if decoded, err := s.engine.Decode([]int32{id}); err == nil {
			text = decoded
		}
		s.known[id] = text
	}
	return text
}

// chatToken returns a token in the format of chat logprobs.
func (s *spelling) chatToken(t *sparrow.Token) openai.TokenLogprob {
	out := openai.TokenLogprob{
		Token: s.show(t.ID, t.Text, openai.TokenText), Logprob: openai.Logprob(t.Logprob),
		Bytes: openai.TokenBytes(t.Text), TopLogprobs: make([]openai.TopLogprob, len(t.Top)),
	}
	for i, alt := range t.Top {
		text := s.of(alt.Token)
		out.TopLogprobs[i] = openai.TopLogprob{Token: s.show(alt.Token, text, openai.TokenText),
			Logprob: openai.Logprob(alt.Logprob), Bytes: openai.TokenBytes(text)}
	}
	return out
}

// columns collects the logprobs of a completion's choice, in OpenAI's columnar format.
type columns struct {
	spelling     *spelling
	alternatives int // maximum number of alternatives, without the token itself
	characters   int // number of characters of the text so far
}

// start counts the characters of text before the first token.
func (c *columns) start(text string) { c.characters += characters(text) }

// add appends tokens to l, or to a new object if l is nil.
func (c *columns) add(l *openai.CompletionLogprobs, tokens []sparrow.Token) *openai.CompletionLogprobs {
	if len(tokens) == 0 {
		return l
	}
	if l == nil {
		l = &openai.CompletionLogprobs{Tokens: []string{}, TokenLogprobs: []*openai.Logprob{}, TextOffset: []int{}}
	}
	for i := range tokens {
		t := &tokens[i]
		p := openai.Logprob(t.Logprob)
		c.append(l, t, t.Text)
		l.TokenLogprobs = append(l.TokenLogprobs, &p)
		if c.alternatives > 0 {
			l.TopLogprobs = append(l.TopLogprobs, c.ranked(t))
		}
	}
	return l
}

// append appends the text of a token and its offset.
func (c *columns) append(l *openai.CompletionLogprobs, t *sparrow.Token, text string) {
	l.Tokens = append(l.Tokens, c.spelling.show(t.ID, t.Text, openai.BytesText))
	l.TextOffset = append(l.TextOffset, c.offset(text))
}

// echoed returns the columns of a prompt whose text is part of the answer. Its first token has no log probability and,
// if the tokenizer has added it, no text.
func (c columns) echoed(scored []sparrow.Token, text string) *openai.CompletionLogprobs {
	if len(scored) == 0 {
		return nil
	}
	c.characters = 0
	l := &openai.CompletionLogprobs{TokenLogprobs: []*openai.Logprob{nil}}
	if c.alternatives > 0 {
		l.TopLogprobs = []openai.RankedLogprobs{nil}
	}
	first := scored[0].Text
	if !strings.HasPrefix(text, first) {
		first = ""
	}
	c.append(l, &scored[0], first)
	return c.add(l, scored[1:])
}

// joined appends the columns b to the columns a; either may be nil.
func joined(a, b *openai.CompletionLogprobs) *openai.CompletionLogprobs {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	return &openai.CompletionLogprobs{Tokens: slices.Concat(a.Tokens, b.Tokens),
		TokenLogprobs: slices.Concat(a.TokenLogprobs, b.TokenLogprobs),
		TopLogprobs:   slices.Concat(a.TopLogprobs, b.TopLogprobs),
		TextOffset:    slices.Concat(a.TextOffset, b.TextOffset)}
}

// prompt returns the logprobs of a prompt in vLLM's format, with at most the given number of alternatives.
func (s *spelling) prompt(scored []sparrow.Token, alternatives int) openai.PromptLogprobs {
	out := make(openai.PromptLogprobs, len(scored))
	for i := range scored {
		t := &scored[i]
		if t.Rank == 0 {
			continue // the first token has no log probability
		}
		out[i] = map[int32]openai.PromptLogprob{}
		for j, alt := range t.Top[:min(alternatives, len(t.Top))] {
			out[i][alt.Token] = openai.PromptLogprob{Logprob: openai.Logprob(alt.Logprob), Rank: j + 1,
				Token: openai.TokenText([]byte(s.of(alt.Token)))}
		}
		out[i][t.ID] = openai.PromptLogprob{Logprob: openai.Logprob(t.Logprob), Rank: t.Rank,
			Token: openai.TokenText([]byte(t.Text))}
	}
	return out
}

// offset returns the offset of a token in characters. A token that begins inside a character has the offset of that
// character.
func (c *columns) offset(text string) int {
	at := c.characters
	if text != "" && continues(text[0]) && at > 0 {
		at--
	}
	c.characters += characters(text)
	return at
}

// ranked returns the alternatives and, if it is not among them, the chosen token, as OpenAI does.
func (c *columns) ranked(t *sparrow.Token) openai.RankedLogprobs {
	top := t.Top[:min(c.alternatives, len(t.Top))]
	list := make(openai.RankedLogprobs, 0, len(top)+1)
	for _, alt := range top {
		list = append(list,
			openai.RankedLogprob{Token: c.spelling.show(alt.Token, c.spelling.of(alt.Token), openai.BytesText),
				Logprob: openai.Logprob(alt.Logprob)})
	}
	if !slices.ContainsFunc(top, func(alt sample.TokenLogprob) bool { return alt.Token == t.ID }) {
		list = append(list, openai.RankedLogprob{Token: c.spelling.show(t.ID, t.Text, openai.BytesText),
			Logprob: openai.Logprob(t.Logprob)})
	}
	return list
}

// continues reports whether a byte is a UTF-8 continuation byte.
func continues(b byte) bool { return b&0xC0 == 0x80 }

// characters returns the number of characters that begin in text, which may begin or end inside a character.
func characters(text string) int {
	n := 0
	for i := range len(text) {
		if !continues(text[i]) {
			n++
		}
	}
	return n
}
