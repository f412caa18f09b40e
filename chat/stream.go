package chat

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"sparrow/internal/mark"
)

// maxName is the maximum length of a tool or parameter name; longer text is treated as content.
const maxName = 1024

// stream is the part that all parsers share: text that is not parsed yet, pending deltas, and the current call. Each
// family adds state functions. A state function reads buf; it returns true if it consumed text or changed the state,
// false if it needs more text.
type stream struct {
	buf []byte // text that has not been consumed yet
	// plain has an entry for each byte of buf: whether the byte comes from a token that is not a control token. It is
	// nil if no marker is a single token.
	plain []bool
	clean int    // offset in buf before which no marker that is searched for starts
	raw   []byte // consumed text that no delta contains yet; it becomes content if the call turns out to be malformed
	done  bool   // whether Close was called, so that there is no more text
	state func() bool
	out   []Delta
	err   error

	tokens []string // markers that are single tokens
	newID  func(int) string
	types  toolTypes
	tools  bool // whether calls are expected; if not, all markup is text
	calls  int  // number of calls that have started
	args   int  // bytes of the current call's arguments that have been written
	value  value
}

func newStream(req Request) *stream {
	newID := req.NewCallID
	if newID == nil {
		newID = randomCallID
	}
	tools := callable(req)
	s := &stream{newID: newID, types: newToolTypes(tools, req.Memo), tools: len(tools) > 0}
	if s.tools {
		s.tokens = req.CallTokens // without tools no marker is searched for, so tokens is not needed
	}
	return s
}

func randomCallID(int) string {
	var b [12]byte
	rand.Read(b[:]) // never fails, according to its documentation
	return "call_" + hex.EncodeToString(b[:])
}

// Feed parses more text of the reply.
func (s *stream) Feed(text mark.Text) []Delta {
	s.buf = append(s.buf, text.String()...)
	if len(s.tokens) > 0 {
		spans := text.Spans()
		for i := range len(text.String()) {
			for len(spans) > 0 && spans[0].End <= i {
				spans = spans[1:]
			}
			s.plain = append(s.plain, len(spans) > 0 && spans[0].Start <= i)
		}
	}
	return s.advance()
}

// genuine reports whether the marker at offset at comes from its own token. The same characters may come from other
// tokens; they are text.
func (s *stream) genuine(at int, marker string) bool {
	for _, token := range s.tokens {
		i := strings.Index(marker, token)
		if i >= 0 && slices.Contains(s.plain[at+i:at+i+len(token)], true) {
			return false
		}
	}
	return true
}

// index returns the first position of a marker in the text from an offset on, or -1.
func (s *stream) index(marker string, from int) int {
	for {
		i := bytes.Index(s.buf[from:], []byte(marker))
		if i < 0 {
			return -1
		}
		if from += i; s.genuine(from, marker) {
			return from
		}
		from++
	}
}

// Close ends the reply.
func (s *stream) Close() ([]Delta, error) {
	s.done = true
	out := s.advance()
	return out, s.err
}

func (s *stream) advance() []Delta {
	for s.state() {
	}
	out := s.out
	s.out = nil
	return out
}

// enter changes the state function.
func (s *stream) enter(state func() bool) bool {
	s.state, s.clean = state, 0
	return true
}

// consume removes and returns n bytes of text.
func (s *stream) consume(n int) string {
	text := string(s.buf[:n])
	s.raw = append(s.raw, s.buf[:n]...)
	s.buf = s.buf[n:]
	if s.plain != nil {
		s.plain = s.plain[n:]
	}
	s.clean = 0
	return text
}

// commit drops the consumed text in raw, because it was delivered or needs no delivery.
func (s *stream) commit() { s.raw = s.raw[:0] }

// find returns the first marker in buf; if several start there, the longest. If there is none, which is -1 and at is
// the first position where an incomplete marker may start.
func (s *stream) find(markers []string) (at, which int) {
	at, which = len(s.buf), -1
	for i, m := range markers {
		j := s.index(m, s.clean)
		if j < 0 {
			continue
		}
		if which < 0 || j < at || j == at && len(m) > len(markers[which]) {
			at, which = j, i
		}
	}
	if which >= 0 || s.done {
		return at, which
	}
	for _, m := range markers {
		at = min(at, len(s.buf)-s.startOf(m))
	}
	return at, -1
}

// startOf returns the length of the longest proper prefix of the marker with which buf ends.
func (s *stream) startOf(marker string) int {
	n := min(len(marker)-1, len(s.buf))
	for n > 0 && !strings.HasPrefix(marker, string(s.buf[len(s.buf)-n:])) {
		n--
	}
	return n
}

// text returns the text before the first marker, and consumes both. Without a marker, it returns and consumes the text
// that cannot be the start of one.
func (s *stream) text(markers ...string) (before string, which int) {
	at, which := s.find(markers)
	before = s.consume(at)
	if which >= 0 {
		s.consume(len(markers[which]))
	}
	return before, which
}

// upTo returns the text before the first marker, and consumes both. Without a marker it consumes nothing.
func (s *stream) upTo(markers ...string) (before string, which int) {
	at, which := s.find(markers)
	if which < 0 {
		s.clean = at
		return "", -1
	}
	before = s.consume(at)
	s.consume(len(markers[which]))
	return before, which
}

const (
	needMore = -1 // the text so far is a proper prefix of an option
	mismatch = -2 // the text so far is no prefix of an option
)

// expect skips white space and consumes one of the options, which must follow. It returns the option's index, needMore
// or mismatch.
func (s *stream) expect(options ...string) int {
	s.skipSpace()
	short := false
	for i, o := range options {
		if bytes.HasPrefix(s.buf, []byte(o)) && s.genuine(0, o) {
			s.consume(len(o))
			return i
		}
		short = short || len(s.buf) < len(o) && strings.HasPrefix(o, string(s.buf))
	}
	if short && !s.done {
		return needMore
	}
	return mismatch
}

func (s *stream) skipSpace() {
	n := 0
	for n < len(s.buf) && strings.IndexByte(" \t\r\n", s.buf[n]) >= 0 {
		n++
	}
	if n > 0 {
		s.consume(n)
	}
}

// deliver emits a delta with text and drops the consumed text in raw.
func (s *stream) deliver(kind DeltaKind, text string) {
	s.commit()
	if text == "" {
		return
	}
	if n := len(s.out); n > 0 && s.out[n-1].Kind == kind && !s.out[n-1].Malformed {
		s.out[n-1].Text += text
		return
	}
	s.out = append(s.out, Delta{Kind: kind, Text: text})
}

// start emits the beginning of a call.
func (s *stream) start(name string) { s.startAs("", name) }

// startAs emits the beginning of a call with the id that the model wrote, or with a new id if it is empty.
func (s *stream) startAs(id, name string) {
	s.commit()
	if id == "" {
		id = s.newID(s.calls)
	}
	s.out = append(s.out, Delta{Kind: DeltaToolCall, Call: CallDelta{Index: s.calls, ID: id, Name: name}})
	s.calls++
	s.args = 0
}

// arguments emits more of the current call's JSON.
func (s *stream) arguments(json string) {
	s.commit()
	if json == "" {
		return
	}
	if n := len(s.out); n > 0 && s.out[n-1].Kind == DeltaToolCall && s.out[n-1].Call.Index == s.calls-1 {
		s.out[n-1].Call.Arguments += json
		return
	}
	s.out = append(s.out, Delta{Kind: DeltaToolCall, Call: CallDelta{Index: s.calls - 1, Arguments: json}})
}

// malformed ends the parsing of calls: the consumed text in raw and all following text become content.
func (s *stream) malformed(format string, args ...any) bool {
	if s.err == nil {
		s.err = fmt.Errorf("%w: %s", ErrMalformedCall, fmt.Sprintf(format, args...))
	}
	return s.enter(s.rest)
}

// rest delivers all remaining text as malformed content.
func (s *stream) rest() bool {
	s.consume(len(s.buf))
	if len(s.raw) > 0 {
		s.out = append(s.out, Delta{Kind: DeltaContent, Text: string(s.raw), Malformed: true})
		s.commit()
	}
	return false
}

// wait is the result of a state function inside a call that needs more text. At the end of the reply it reports an
// unfinished call. The remaining text is dropped, because it consists of incomplete markers and names.
func (s *stream) wait() bool {
	if !s.done {
		return false
	}
	if s.err == nil {
		s.err = fmt.Errorf("%w: call %d", ErrUnfinishedCall, max(s.calls-1, 0))
	}
	s.consume(len(s.buf))
	s.commit()
	return false
}

// begin sets the first state. It is reasoning if the prompt or the reply opens a reasoning block, and content follows.
// If no calls are expected, the content state is plainContent, otherwise the argument.
func (s *stream) begin(inReasoning bool, content func() bool) {
	if !s.tools {
		content = s.plainContent
	}
	reasoning := func() bool {
		text, which := s.text(thinkClose)
		s.deliver(DeltaReasoning, text)
		if which < 0 {
			return false
		}
		return s.enter(content)
	}
	s.state = func() bool {
		switch {
		case bytes.HasPrefix(s.buf, []byte(thinkOpen)):
			s.consume(len(thinkOpen))
			s.commit()
			return s.enter(reasoning)
		case strings.HasPrefix(thinkOpen, string(s.buf)) && !s.done:
			return false
		case inReasoning:
			return s.enter(reasoning)
		}
		return s.enter(content)
	}
}

// plainContent is the content state of replies in which no calls are expected.
func (s *stream) plainContent() bool {
	text, _ := s.text()
	s.deliver(DeltaContent, text)
	return false
}

// contentUntil delivers content up to one of the markers. It returns the marker's index, or -1 if none was found yet.
func (s *stream) contentUntil(markers ...string) int {
	at, which := s.find(markers)
	s.deliver(DeltaContent, s.consume(at))
	if which >= 0 {
		s.consume(len(markers[which]))
	}
	return which
}

// word reads a name up to one of the markers, which must start within maxName bytes. If which is -1, there is no marker
// or it starts later; the state function then returns again.
func (s *stream) word(what string, markers ...string) (text string, which int, again bool) {
	text, which = s.upTo(markers...)
	switch {
	case len(text) > maxName || which < 0 && s.clean > maxName:
		return "", -1, s.malformed("%s is longer than %d bytes, which is the limit", what, maxName)
	case which < 0:
		return "", -1, s.wait()
	}
	return text, which, true
}

// validName reports whether text can be the name of a tool or parameter. Markup with another name is treated as
// content.
func validName(name string) bool {
	return name != "" && !strings.ContainsAny(name, "\"<>{}\r\n")
}

// duplicate records a parameter name and reports whether the call already had it.
func duplicate(seen *[]string, name string) bool {
	if slices.Contains(*seen, name) {
		return true
	}
	*seen = append(*seen, name)
	return false
}
