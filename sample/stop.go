package sample

import "slices"

// StopMatcher ends a streamed text at the first stop string. It holds back text that may be the beginning of one. The
// result does not depend on how the text is divided into pieces.
//
// If several stop strings occur, the one whose end comes first is used; of those with the same end, the longest.
type StopMatcher struct {
	patterns []pattern
	include  bool
	tokens   []int32
	held     []byte // text held back: its longest suffix that begins a stop string
	matched  int    // index of the stop string that was found, or -1
}

// pattern searches for one stop string (Knuth, Morris, Pratt).
type pattern struct {
	text   string
	border []int32 // [len(text)] length of the longest proper prefix of text[:i+1] that is also its suffix
	at     int     // number of bytes at the start of text that match the end of the input
}

// NewStopMatcher returns the matcher for one sequence. For invalid stop strings it returns the errors of
// [Params.Validate].
func NewStopMatcher(p *Params) (*StopMatcher, error) {
	e := &ParamsError{}
	validateStops(e, p.Stop)
	if err := e.orNil(); err != nil {
		return nil, err
	}
	m := &StopMatcher{include: p.IncludeStop, tokens: slices.Clone(p.StopTokenIDs), matched: -1}
	for _, s := range p.Stop {
		m.patterns = append(m.patterns, pattern{text: s, border: borders(s)})
	}
	return m, nil
}

// Token reports whether a token ends the sequence. The token's text is not part of the output.
func (m *StopMatcher) Token(id int32) bool { return slices.Contains(m.tokens, id) }

// Push adds a piece of text. It returns the text that can be sent, and whether a stop string was found; the text then
// ends. If all pieces end between characters, so do the results.
func (m *StopMatcher) Push(text string) (release string, stopped bool) {
	if m.matched >= 0 {
		return "", true
	}
	if len(m.patterns) == 0 {
		return text, false
	}
	for i := range len(text) {
		found := m.advance(text[i])
		if found < 0 {
			continue
		}
		m.matched = found
		all := string(m.held) + text[:i+1]
		m.held = m.held[:0]
		if m.include {
			return all, true
		}
		return all[:len(all)-len(m.patterns[found].text)], true
	}
	return m.release(text), false
}

// advance adds a byte to the input of every pattern. It returns the index of the longest one that matches now, or -1.
func (m *StopMatcher) advance(b byte) int {
	found := -1
	for i := range m.patterns {
		p := &m.patterns[i]
		for p.at > 0 && p.text[p.at] != b {
			p.at = int(p.border[p.at-1])
		}
		if p.text[p.at] == b {
			p.at++
		}
		if p.at == len(p.text) && (found < 0 || len(p.text) > len(m.patterns[found].text)) {
			found = i
		}
	}
	return found
}

// release returns the text that cannot be part of a stop string, and holds back the rest.
func (m *StopMatcher) release(text string) string {
	hold := 0
	for i := range m.patterns {
		hold = max(hold, m.patterns[i].at)
	}
	if len(m.held) == 0 {
		n := len(text) - hold
		m.held = append(m.held, text[n:]...)
		return text[:n]
	}
	m.held = append(m.held, text...)
	n := len(m.held) - hold
	out := string(m.held[:n])
	m.held = append(m.held[:0], m.held[n:]...)
	return out
}

// Flush returns the text that was held back, when the sequence ends without a stop string.
func (m *StopMatcher) Flush() string {
	out := string(m.held)
	m.held = m.held[:0]
	for i := range m.patterns {
		m.patterns[i].at = 0
	}
	return out
}

// Matched returns the stop string that ended the text; ok is false if none did.
func (m *StopMatcher) Matched() (stop string, ok bool) {
	if m.matched < 0 {
		return "", false
	}
	return m.patterns[m.matched].text, true
}

// borders returns the failure table of Knuth, Morris and Pratt for a pattern.
func borders(s string) []int32 {
	table := make([]int32, len(s))
	n := int32(0)
	for i := 1; i < len(s); i++ {
		for n > 0 && s[i] != s[n] {
			n = table[n-1]
		}
		if s[i] == s[n] {
			n++
		}
		table[i] = n
	}
	return table
}
