package server

import (
	"slices"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/sample"
)

// spelling gives the bytes of token ids, and remembers them: alternatives repeat.
type spelling struct {
	engine Engine
	known  map[int32]string
	ids    bool // tokens are shown as their ids
}

func newSpelling(e Engine, ids bool) *spelling { return &spelling{e, map[int32]string{}, ids} }

// show is a token's name in logprobs: its id where ids are asked for, else what name makes of its bytes.
func (s *spelling) show(id int32, text string, name func([]byte) string) string {
	if s.ids {
		return openai.TokenID(id)
	}
	return name([]byte(text))
}

// of is empty for an id without a token.
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

// chatToken is a token in chat's form.
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

// columns collects the tokens of a text completion's choice. alternatives says whether top_logprobs are wanted at all.
type columns struct {
	spelling     *spelling
	alternatives bool
	characters   int // in the text so far
}

// start counts text that comes before the first token.
func (c *columns) start(text string) { c.characters += characters(text) }

// add appends tokens to l, which may be nil.
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
		l.Tokens = append(l.Tokens, c.spelling.show(t.ID, t.Text, openai.BytesText))
		l.TokenLogprobs = append(l.TokenLogprobs, &p)
		l.TextOffset = append(l.TextOffset, c.offset(t.Text))
		if c.alternatives {
			l.TopLogprobs = append(l.TopLogprobs, c.ranked(t))
		}
	}
	return l
}

// offset is where a token starts, in characters; one that goes on with a character starts where that does.
func (c *columns) offset(text string) int {
	at := c.characters
	if text != "" && continues(text[0]) && at > 0 {
		at--
	}
	c.characters += characters(text)
	return at
}

// ranked lists the alternatives, and behind them the chosen token when it is none of them, as OpenAI does.
func (c *columns) ranked(t *sparrow.Token) openai.RankedLogprobs {
	list := make(openai.RankedLogprobs, 0, len(t.Top)+1)
	for _, alt := range t.Top {
		list = append(list,
			openai.RankedLogprob{Token: c.spelling.show(alt.Token, c.spelling.of(alt.Token), openai.BytesText),
				Logprob: openai.Logprob(alt.Logprob)})
	}
	if !slices.ContainsFunc(t.Top, func(alt sample.TokenLogprob) bool { return alt.Token == t.ID }) {
		list = append(list, openai.RankedLogprob{Token: c.spelling.show(t.ID, t.Text, openai.BytesText),
			Logprob: openai.Logprob(t.Logprob)})
	}
	return list
}

// continues says whether a byte goes on with a UTF-8 character that began earlier.
func continues(b byte) bool { return b&0xC0 == 0x80 }

// characters counts those that start in text, which may begin and end inside one.
func characters(text string) int {
	n := 0
	for i := range len(text) {
		if !continues(text[i]) {
			n++
		}
	}
	return n
}
