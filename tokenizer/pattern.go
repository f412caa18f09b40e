package tokenizer

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

// Limits of one search. The pattern engine backtracks and may take exponential time for some texts; such a request then
// fails.
const (
	matchTimeout   = 5 * time.Second
	backtrackSlots = 1 << 24
)

// span is the part s[start:end] of a string, in bytes.
type span struct{ start, end int32 }

func (p span) of(s string) string { return s[p.start:p.end] }

// appendSpan appends start..end unless it is empty.
func appendSpan(dst []span, start, end int) []span {
	if start == end {
		return dst
	}
	return append(dst, span{int32(start), int32(end)})
}

// matcher finds all matches of a pattern, left to right, without overlaps.
type matcher interface {
	matches(sc *scratch, s string, dst []span) ([]span, error)
}

// newMatcher compiles a pattern of tokenizer.json.
func newMatcher(p patternFile) (matcher, error) {
	switch {
	case p.Regex != nil:
		re, err := regexp2.Compile(*p.Regex, regexp2.OptionMaxBacktrackingStackSize(backtrackSlots))
		if err != nil {
			return nil, malformed("pattern %q: %v", *p.Regex, err)
		}
		re.MatchTimeout = matchTimeout
		return regexMatcher{re}, nil
	case p.String != nil:
		return stringMatcher(*p.String), nil
	}
	return nil, malformed(`a pattern has neither "Regex" nor "String"`)
}

// canonicalPattern replaces line breaks in a pattern by escapes, because files contain both.
func canonicalPattern(p string) string {
	return strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(p)
}

// stringMatcher matches a literal; an empty one matches nothing.
type stringMatcher string

func (m stringMatcher) matches(_ *scratch, s string, dst []span) ([]span, error) {
	if m == "" {
		return dst, nil
	}
	for at := 0; ; {
		i := strings.Index(s[at:], string(m))
		if i < 0 {
			return dst, nil
		}
		dst = append(dst, span{int32(at + i), int32(at + i + len(m))})
		at += i + len(m)
	}
}

// regexMatcher matches a regular expression, which may have look-around.
type regexMatcher struct{ re *regexp2.Regexp }

func (m regexMatcher) matches(sc *scratch, s string, dst []span) ([]span, error) {
	runes := sc.runes[:0]
	for _, r := range s { // an invalid byte counts as U+FFFD and has one byte
		runes = append(runes, r)
	}
	sc.runes = runes
	// The engine counts in characters and returns matches in order, so one cursor converts their ends to byte offsets.
	chars, bytes, first := 0, 0, len(dst)
	seek := func(to int) int32 {
		for ; chars < to; chars++ {
			_, size := utf8.DecodeRuneInString(s[bytes:])
			bytes += size
		}
		return int32(bytes)
	}
	err := m.re.FindRunesMatches(runes, 0, func(v regexp2.MatchView) bool {
		at, n, _ := v.GroupRange(0)
		p := span{seek(at), 0}
		p.end = seek(at + n)
		// Skip an empty match directly after another match.
		if n > 0 || len(dst) == first || dst[len(dst)-1].end != p.start {
			dst = append(dst, p)
		}
		return true
	})
	if err != nil {
		return dst, fmt.Errorf("%w: %q on %d bytes: %v", ErrPattern, m.re.String(), len(s), err)
	}
	return dst, nil
}
