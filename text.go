package sparrow

import (
	"errors"
	"fmt"
	"slices"

	"sparrow/chat"
	"sparrow/tokenizer"
)

// Encode returns the token ids of a text. Control tokens that are spelled in the text become control tokens. With
// addSpecial, it adds the special tokens that the tokenizer adds, such as the beginning-of-sequence token.
func (e *Engine) Encode(text string, addSpecial bool) ([]int32, error) {
	return e.tokens("prompt", text, tokenizer.EncodeOptions{AddSpecial: addSpecial, ParseSpecial: true})
}

// EncodeWhole returns the token ids of a text of any length, without special tokens. Control tokens in it are plain
// text.
func (e *Engine) EncodeWhole(text string) ([]int32, error) {
	if e.tok == nil {
		return nil, ErrNoTokenizer
	}
	return e.tok.Encode(text, tokenizer.EncodeOptions{})
}

// tokens encodes the text of a request's field, which errors name.
func (e *Engine) tokens(field, text string, o tokenizer.EncodeOptions) ([]int32, error) {
	if e.tok == nil {
		return nil, ErrNoTokenizer
	}
	// The limit is twice the context, so that the error for a slightly longer text has the exact number of tokens.
	o.Limit = 2 * e.info.ContextTokens
	ids, err := e.tok.Encode(text, o)
	switch {
	case errors.Is(err, tokenizer.ErrTooLong):
		return nil, &RequestError{Field: field, Err: ErrContext, Reason: fmt.Sprintf("more than %d tokens; the "+
			"context holds %d, and one of them is for the answer: send less", o.Limit, e.info.ContextTokens)}
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return ids, nil
}

// Decode returns the text of token ids, including special tokens.
func (e *Engine) Decode(ids []int32) (string, error) {
	if e.tok == nil {
		return "", ErrNoTokenizer
	}
	for i, id := range ids {
		if id < 0 || int(id) >= e.info.Vocabulary {
			return "", &RequestError{Field: "tokens",
				Reason: fmt.Sprintf("token %d is %d, but the vocabulary has %d tokens", i, id, e.info.Vocabulary)}
		}
	}
	return e.tok.Decode(ids, false), nil
}

// conversation returns a chat with the settings of the configuration. Developer messages become system messages if the
// format has no developer role.
func (e *Engine) conversation(c *chat.Request) chat.Request {
	out := *c
	out.ControlTokens, out.CallTokens, out.Memo = e.cfg.ControlTokens, e.callTokens, e.shown
	isDeveloper := func(m chat.Message) bool { return m.Role == chat.Developer }
	if !e.developers && slices.ContainsFunc(c.Messages, isDeveloper) {
		out.Messages = slices.Clone(c.Messages)
		for i := range out.Messages {
			if isDeveloper(out.Messages[i]) {
				out.Messages[i].Role = chat.System
			}
		}
	}
	return out
}

// Render returns the prompt of a conversation as text and as token ids. The ids may differ from those of Encode,
// because control tokens that are spelled in a message are text.
func (e *Engine) Render(c *chat.Request) (string, []int32, error) {
	p, ids, err := e.render(c)
	return p.Text, ids, err
}

// EncodeChat returns the token ids of a conversation's prompt. With addSpecial, it adds the tokenizer's special tokens,
// unless the chat format has written them.
func (e *Engine) EncodeChat(c *chat.Request, addSpecial bool) ([]int32, error) {
	p, ids, err := e.render(c)
	if err != nil || !addSpecial {
		return ids, err
	}
	return e.tokens("messages", p.Text,
		tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: true, Literal: p.Content})
}

// render renders a chat as Render does, and also returns the chat.Prompt.
func (e *Engine) render(c *chat.Request) (chat.Prompt, []int32, error) {
	if e.tok == nil {
		return chat.Prompt{}, nil, ErrNoTokenizer
	}
	if e.noChat != nil {
		return chat.Prompt{}, nil, &RequestError{Field: "messages", Reason: e.noChat.Error(), Err: e.noChat}
	}
	if e.format == nil {
		return chat.Prompt{}, nil, &RequestError{Field: "messages",
			Reason: "this checkpoint has no chat format; use completions", Err: chat.ErrNoFormat}
	}
	p, err := e.format.Render(e.conversation(c))
	if err != nil {
		if errors.Is(err, chat.ErrRequest) || errors.Is(err, chat.ErrUnsupported) {
			err = fmt.Errorf("%w: %w", ErrRequest, err)
		}
		return chat.Prompt{}, nil, err
	}
	for _, m := range p.Markers {
		if id, ok := e.tok.TokenID(m); !ok || !e.tok.IsAdded(id) {
			return chat.Prompt{}, nil, &RequestError{Field: "messages",
				Reason: fmt.Sprintf("needs %q, which this checkpoint's tokenizer does not have", m)}
		}
	}
	ids, err := e.tokens("messages", p.Text,
		tokenizer.EncodeOptions{AddSpecial: !p.HasBOS, ParseSpecial: true, Literal: p.Content})
	return p, ids, err
}
