package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Decode returns the bytes of ids. With a byte-level vocabulary Decode(Encode(s)) == s. The result is invalid UTF-8 if
// the ids do not form whole characters. With skipSpecial, special tokens are omitted. Ids without a token have no text.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	var b strings.Builder
	strip := t.detok.stripCount
	for _, id := range ids {
		if skipSpecial && t.IsSpecial(id) {
			continue
		}
		var text string
		text, strip = t.detok.strip(t.out.str(id), strip)
		b.WriteString(text)
	}
	return b.String()
}

// strip removes text that the decoder strips from the beginning of a text, at most left times. It returns the remaining
// number of times.
func (d *detok) strip(text string, left int) (string, int) {
	for left > 0 && text != "" {
		rest, ok := strings.CutPrefix(text, d.stripChar)
		if !ok {
			return text, 0
		}
		text, left = rest, left-1
	}
	return text, left
}

// Decoder converts ids to text one by one. Its output is valid UTF-8: bytes of an incomplete character are held back,
// and every maximal invalid sequence becomes U+FFFD. The concatenated output equals Decode of all ids with the same
// replacement.
type Decoder struct {
	t     *Tokenizer
	skip  func(id int32) bool
	strip int
	held  []byte // incomplete character, at most 3 bytes between calls
}

// NewDecoder returns a decoder. Tokens for which skip returns true, such as IsSpecial, are omitted; nil omits none.
// Only one goroutine may use a Decoder.
func (t *Tokenizer) NewDecoder(skip func(id int32) bool) *Decoder {
	return &Decoder{t: t, skip: skip, strip: t.detok.stripCount}
}

// Next returns the text that is complete after id: often the token's text, sometimes "".
func (d *Decoder) Next(id int32) string {
	if d.skip != nil && d.skip(id) {
		return ""
	}
	var text string
	text, d.strip = d.t.detok.strip(d.t.out.str(id), d.strip)
	if len(d.held) == 0 && utf8.ValidString(text) {
		return text
	}
	d.held = append(d.held, text...)
	n := wholeLen(d.held)
	out := validUTF8(d.held[:n])
	d.held = append(d.held[:0], d.held[n:]...)
	return out
}

// Flush ends the text: it returns bytes that were held back, as U+FFFD. The Decoder can then be used for another text.
func (d *Decoder) Flush() string {
	out := validUTF8(d.held)
	d.held = d.held[:0]
	d.strip = d.t.detok.stripCount
	return out
}

// Pending returns the number of bytes that are held back.
func (d *Decoder) Pending() int { return len(d.held) }

// wholeLen returns the length of b without an incomplete character at the end.
func wholeLen(b []byte) int {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if utf8.FullRune(b[i:]) {
				break
			}
			return i
		}
	}
	return len(b)
}

// validUTF8 replaces every maximal invalid sequence by U+FFFD: the longest beginning of a character that is not
// completed, or a byte that begins no character.
func validUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			for size < len(b) && !utf8.FullRune(b[:size]) && !utf8.FullRune(b[:size+1]) {
				size++
			}
		}
		out.WriteRune(r)
		b = b[size:]
	}
	return out.String()
}
