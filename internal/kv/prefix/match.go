package prefix

import "fmt"

// Stop is the reason why a lookup did not match more of the prompt.
type Stop uint8

// Reasons.
const (
	// StopOff: prefix caching is disabled.
	StopOff Stop = iota
	// StopWhole: every full page of the prompt matched; the remaining tokens do not fill a page.
	StopWhole
	// StopCompute: the next page contains tokens that must be computed, at least the last token of the prompt.
	StopCompute
	// StopDifferent: the stored pages after the match have other tokens; Match.At is the first different token.
	StopDifferent
	// StopEvicted: the next page was stored, but has been evicted.
	StopEvicted
	// StopUnknown: no page is stored after the match, and the next page was not evicted recently.
	StopUnknown
	// StopWindow: a longer prefix is stored, but without the window rows that the next token attends to.
	StopWindow
	// StopCollision: another page has the same hash as the next page.
	StopCollision

	// Stops is the number of reasons.
	Stops
)

var stopNames = [Stops]string{
	StopOff:       "prefix reuse is off",
	StopWhole:     "no full page of the prompt is left",
	StopCompute:   "the last tokens must be computed",
	StopDifferent: "first difference",
	StopEvicted:   "page evicted",
	StopUnknown:   "page never stored",
	StopWindow:    "window rows evicted",
	StopCollision: "another page has the same hash",
}

// String returns the reason as text.
func (s Stop) String() string {
	if s < Stops {
		return stopNames[s]
	}
	return fmt.Sprintf("Stop(%d)", uint8(s))
}

// Match is the result of a lookup.
type Match struct {
	// Tokens and Pages are the length of the match; Tokens is Pages times the page size.
	Tokens, Pages int
	// Prompt is the number of tokens of the prompt.
	Prompt int
	// Stop is the reason why the match is not longer.
	Stop Stop
	// At is the index of the token at which the lookup stopped: the first different token for StopDifferent, else
	// Tokens.
	At int
}

// String describes the match in one line.
func (m Match) String() string {
	return fmt.Sprintf("matched %d of %d tokens (%d pages), stopped at token %d: %v", m.Tokens, m.Prompt, m.Pages, m.At,
		m.Stop)
}
