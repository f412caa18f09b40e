package sparrow

import (
	"errors"
	"fmt"

	"sparrow/chat"
	"sparrow/tokenizer"
)

// Encode gives the token ids of a text, with the beginning-of-sequence token where the tokenizer adds it.
func (e *Engine) Encode(text string, addSpecial bool) ([]int32, error) {
	if e.tok == nil {
		return nil, ErrNoTokenizer
	}
	ids, err := e.tok.Encode(text, tokenizer.EncodeOptions{AddSpecial: addSpecial, ParseSpecial: true})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return ids, nil
}

// Decode gives the text of token ids, special tokens included.
func (e *Engine) Decode(ids []int32) (string, error) {
	if e.tok == nil {
		return "", ErrNoTokenizer
	}
	for i, id := range ids {
		if id < 0 || int(id) >= e.info.Vocabulary {
			return "", &RequestError{Field: "tokens",
				Reason: fmt.Sprintf("token %d is %d, the vocabulary has %d", i, id, e.info.Vocabulary)}
		}
	}
	return e.tok.Decode(ids, false), nil
}

// Render writes a conversation as the model reads it.
func (e *Engine) Render(c *chat.Request) (string, []int32, error) {
	p, ids, err := e.render(c)
	return p.Text, ids, err
}

// render also returns what the format knows about the prompt.
func (e *Engine) render(c *chat.Request) (chat.Prompt, []int32, error) {
	if e.tok == nil {
		return chat.Prompt{}, nil, ErrNoTokenizer
	}
	if e.format == nil {
		return chat.Prompt{}, nil, &RequestError{Field: "messages",
			Reason: "this checkpoint has no chat format; use completions", Err: chat.ErrNoFormat}
	}
	p, err := e.format.Render(*c)
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
	ids, err := e.Encode(p.Text, !p.HasBOS)
	return p, ids, err
}
