package tokenizer

import (
	"fmt"
	"math"
	"slices"

	"sparrow/internal/mark"
)

// EncodeOptions configures special and added tokens.
type EncodeOptions struct {
	// AddSpecial adds the tokens before and after a text that the checkpoint requires, such as the
	// beginning-of-sentence token. Tokens with which the text already begins or ends are not added again.
	AddSpecial bool

	// ParseSpecial converts the text of an added token, such as <｜User｜>, to that token, even if it is not marked as
	// special. Otherwise such text is plain text, so that a user cannot forge a turn of a conversation.
	ParseSpecial bool

	// Literal lists spans of the text, ascending and disjoint, in which ParseSpecial has no effect, such as the
	// contents of messages in a rendered conversation. An added token with at least one byte in a span is not matched.
	// Added tokens of white space are always matched, because they are text.
	Literal []mark.Span

	// Limit is the maximum number of tokens; 0 means no limit. If a text has more, Encode returns ErrTooLong early.
	Limit int
}

// Encode returns the tokens of text. The error is ErrTooLong, ErrUnencodable or ErrPattern. The last two cannot occur
// with a vocabulary of all bytes and known patterns (scan.go).
func (t *Tokenizer) Encode(text string, opts EncodeOptions) ([]int32, error) {
	return t.Append(nil, text, opts)
}

// Append appends the tokens of text to dst, as Encode returns them. After an error, it returns dst unchanged.
func (t *Tokenizer) Append(dst []int32, text string, opts EncodeOptions) ([]int32, error) {
	if len(text) > math.MaxInt32-1 {
		return dst, fmt.Errorf("tokenizer: %w: the text has %d bytes, want at most %d", ErrUnencodable, len(text),
			math.MaxInt32-1)
	}
	if opts.Limit > 0 && t.fewest(len(text)) > opts.Limit {
		return dst, fmt.Errorf("tokenizer: %w of %d tokens", ErrTooLong, opts.Limit)
	}
	e := encoder{t: t, sc: t.scratch.Get().(*scratch), opts: opts, ids: dst, start: len(dst)}
	defer func() {
		e.sc.trim()
		t.scratch.Put(e.sc)
	}()
	if opts.AddSpecial {
		e.ids = append(e.ids, t.frame.before...)
	}
	start := len(e.ids)
	if err := e.text(text); err != nil {
		return dst, fmt.Errorf("tokenizer: %w", err)
	}
	if !opts.AddSpecial {
		return e.ids, nil
	}
	if n := len(t.frame.before); n > 0 && hasPrefix(e.ids[start:], t.frame.before) {
		e.ids = slices.Delete(e.ids, start-n, start)
		start -= n
	}
	if !hasSuffix(e.ids[start:], t.frame.after) {
		e.ids = append(e.ids, t.frame.after...)
	}
	return e.ids, nil
}

func hasPrefix(ids, prefix []int32) bool {
	return len(ids) >= len(prefix) && slices.Equal(ids[:len(prefix)], prefix)
}

func hasSuffix(ids, suffix []int32) bool {
	return len(ids) >= len(suffix) && slices.Equal(ids[len(ids)-len(suffix):], suffix)
}

// encoder holds the state of one call of Append.
type encoder struct {
	t    *Tokenizer
	sc   *scratch
	opts EncodeOptions
	ids  []int32

	start int // number of ids in dst before this call
}

// fewest returns a lower bound of the number of tokens of a text with the given number of bytes.
func (t *Tokenizer) fewest(bytes int) int {
	if len(t.normalizers) > 0 || t.model.unknown >= 0 || !t.model.byteLevel {
		return 0 // a normalizer may shorten the text, or one unknown token may replace any part of it
	}
	return bytes / max(t.longest, 1)
}

// text encodes a text: first added tokens that are matched before normalisation, then the text between them.
func (e *encoder) text(s string) error {
	return e.split(&e.t.raw, s, e.opts.Literal, func(s string, literal []mark.Span) error {
		n := e.t.normalize(s)
		return e.split(&e.t.normed, n, e.t.normalizedSpans(s, n, literal), e.plain)
	})
}

// split appends the added tokens of set in s, outside literal, and calls rest with the text between them.
func (e *encoder) split(set *addedSet, s string, literal []mark.Span, rest func(string, []mark.Span) error) error {
	at, ahead := 0, literal
	for e.opts.ParseSpecial {
		for len(ahead) > 0 && ahead[0].End <= at {
			ahead = ahead[1:]
		}
		start, end, tok := set.find(s, at, ahead)
		if tok == nil {
			break
		}
		if at < start {
			if err := rest(s[at:start], mark.Within(literal, at, start)); err != nil {
				return err
			}
		}
		e.ids = append(e.ids, tok.ID)
		if err := e.within(0); err != nil {
			return err
		}
		at = end
	}
	if at == len(s) {
		return nil
	}
	return rest(s[at:], mark.Within(literal, at, len(s)))
}

// plain encodes text without added tokens.
func (e *encoder) plain(s string, _ []mark.Span) error {
	return e.t.pieces.each(e.sc, s, func(piece string) (err error) {
		if err := e.within(e.t.fewest(len(piece))); err != nil {
			return err
		}
		if e.ids, err = e.t.model.encode(&e.sc.merge, e.ids, piece); err != nil {
			return err
		}
		return e.within(0)
	})
}

// within returns ErrTooLong if the given number of further tokens would exceed the limit.
func (e *encoder) within(more int) error {
	if limit := e.opts.Limit; limit > 0 && len(e.ids)-e.start+more > limit {
		return fmt.Errorf("%w of %d tokens", ErrTooLong, limit)
	}
	return nil
}

func (t *Tokenizer) normalize(s string) string {
	for _, n := range t.normalizers {
		s = n(s)
	}
	return s
}

// normalizedSpans returns the spans in n, the normalised s, that correspond to the spans literal in s. If normalisation
// joins characters across the edge of a span, the span includes the joined characters.
func (t *Tokenizer) normalizedSpans(s, n string, literal []mark.Span) []mark.Span {
	if len(literal) == 0 || len(t.normalizers) == 0 {
		return literal
	}
	if _, _, tok := t.normed.find(n, 0, nil); tok == nil {
		return nil // the text contains no added token
	}
	var out []mark.Span
	for _, m := range literal {
		// Bytes that result from s[:Start] alone, or from s[End:] alone, are outside the span.
		start, after := commonPrefix(n, t.normalize(s[:m.Start])), commonSuffix(n, t.normalize(s[m.End:]))
		if len(out) > 0 {
			start = max(start, out[len(out)-1].End)
		}
		if end := len(n) - after; start < end {
			out = append(out, mark.Span{Start: start, End: end})
		}
	}
	return out
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func commonSuffix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}
