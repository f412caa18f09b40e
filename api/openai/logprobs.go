package openai

import (
	"encoding/json"
	"fmt"
	"math"
	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ChatLogprobs holds the log probabilities of the content tokens of a choice or a chunk.
type ChatLogprobs struct {
	Content []TokenLogprob `json:"content"`
	Refusal []TokenLogprob `json:"refusal"` // always null
}

// MarshalJSON writes the object as it is written in a stream.
func (l *ChatLogprobs) MarshalJSON() ([]byte, error) { return appendChatLogprobs(nil, l), nil }

// TokenLogprob is a chosen token with the most probable alternatives at its position.
type TokenLogprob struct {
	Token       string       `json:"token"` // token as [TokenText] writes it
	Logprob     Logprob      `json:"logprob"`
	Bytes       TokenBytes   `json:"bytes"`
	TopLogprobs []TopLogprob `json:"top_logprobs"`
}

// TopLogprob is one alternative.
type TopLogprob struct {
	Token   string     `json:"token"`
	Logprob Logprob    `json:"logprob"`
	Bytes   TokenBytes `json:"bytes"`
}

// CompletionLogprobs holds the log probabilities of a text completion, in OpenAI's older format: every slice has one
// entry per token.
type CompletionLogprobs struct {
	Tokens        []string   `json:"tokens"`         // tokens as [BytesText] writes them
	TokenLogprobs []*Logprob `json:"token_logprobs"` // null for the first token of an echoed prompt
	// TopLogprobs has a null entry if no token was predicted at the position. It is nil if no alternatives were
	// requested.
	TopLogprobs []RankedLogprobs `json:"top_logprobs"`
	TextOffset  []int            `json:"text_offset"` // characters from the start of the choice's text
}

// MarshalJSON writes the object as it is written in a stream.
func (l *CompletionLogprobs) MarshalJSON() ([]byte, error) {
	return appendCompletionLogprobs(nil, l), nil
}

// PromptLogprobs has an entry for each token of a prompt, as in vLLM. An entry holds the token itself and the most
// probable tokens at its position, by id. The first entry is null, because the first token has no predecessor.
type PromptLogprobs []map[int32]PromptLogprob

// PromptLogprob is one token at a position of a prompt.
type PromptLogprob struct {
	Logprob Logprob `json:"logprob"`
	Rank    int     `json:"rank"` // 1 for the most probable token
	Token   string  `json:"decoded_token"`
}

// Logprob is the natural logarithm of a probability. JSON has no infinity, so minus infinity is written as
// [Impossible], the value that OpenAI documents for this.
type Logprob float64

// Impossible represents minus infinity on the wire.
const Impossible Logprob = -9999

// MarshalJSON writes a finite number.
func (l Logprob) MarshalJSON() ([]byte, error) { return appendLogprob(nil, l), nil }

// finite replaces infinities, NaN and values below Impossible by Impossible.
func (l Logprob) finite() float64 {
	if v := float64(l); v >= float64(Impossible) && !math.IsInf(v, 1) {
		return v
	}
	return float64(Impossible)
}

// TokenBytes are the UTF-8 bytes of a token, written as an array of numbers. A token may contain part of a character.
type TokenBytes []byte

// MarshalJSON writes an array of numbers, or null.
func (b TokenBytes) MarshalJSON() ([]byte, error) { return appendBytes(nil, b), nil }

// UnmarshalJSON reads an array of numbers, or null.
func (b *TokenBytes) UnmarshalJSON(text []byte) error {
	var numbers []uint16
	if err := json.Unmarshal(text, &numbers); err != nil {
		return fmt.Errorf("openai: token bytes: %w", err)
	}
	*b = nil
	if numbers == nil {
		return nil
	}
	*b = make(TokenBytes, len(numbers))
	for i, n := range numbers {
		if n > math.MaxUint8 {
			return fmt.Errorf("openai: token bytes: %d at index %d is not a byte", n, i)
		}
		(*b)[i] = byte(n)
	}
	return nil
}

// RankedLogprobs lists alternatives, the most probable first. It is written as one object that maps tokens to log
// probabilities.
type RankedLogprobs []RankedLogprob

// RankedLogprob is one entry of [RankedLogprobs].
type RankedLogprob struct {
	Token   string
	Logprob Logprob
}

// MarshalJSON writes an object in rank order, or null. If two tokens have the same text, the more probable one is
// written.
func (r RankedLogprobs) MarshalJSON() ([]byte, error) { return appendRanked(nil, r), nil }

// UnmarshalJSON reads an object and keeps the order of its names.
func (r *RankedLogprobs) UnmarshalJSON(text []byte) error {
	*r = nil
	c := wire.NewReader(text)
	if c.Shape() == jsonscan.Null {
		c.Word()
	} else if c.Shape() == jsonscan.Object {
		*r = RankedLogprobs{}
		for token := range c.Members {
			if v, ok := c.Float(); ok {
				*r = append(*r, RankedLogprob{token, Logprob(v)})
			}
		}
	} else {
		c.WrongShape("an object")
	}
	if err := c.Finish(); err != nil {
		return fmt.Errorf("openai: ranked logprobs: %w", err)
	}
	return nil
}

// TokenID returns a token's id as logprobs contain it for requests with return_tokens_as_token_ids.
func TokenID(id int32) string { return "token_id:" + strconv.Itoa(int(id)) }

// TokenText returns a token as written in chat logprobs: its text, or \x escapes if it is not valid UTF-8.
func TokenText(token []byte) string {
	if utf8.Valid(token) {
		return string(token)
	}
	var b strings.Builder
	for _, x := range token {
		fmt.Fprintf(&b, `\x%02x`, x)
	}
	return b.String()
}

// BytesText returns a token as written in the logprobs of text completions: like [TokenText], with "bytes:" before
// escapes.
func BytesText(token []byte) string {
	if utf8.Valid(token) {
		return string(token)
	}
	return "bytes:" + TokenText(token)
}
