package prefix

import "fmt"

// Stop is the reason why a lookup did not match more of the prompt.
type Stop uint8

// Reasons why a lookup stops.
const (
	// StopOff: prefix reuse is disabled.
	StopOff Stop = iota
	// StopWhole: every full page of the prompt matched; the rest does not fill a page.
	StopWhole
	// StopCompute: the next page holds tokens that must be computed, at least the last token of the prompt.
	StopCompute
	// StopDifferent: a stored prompt continues differently; Match.At is the first different token.
	StopDifferent
	// StopEvicted: the next page was stored and has been evicted since.
	StopEvicted
	// StopUnknown: nothing is stored after the matched pages, and no such page was evicted recently.
	StopUnknown
	// StopWindow: more of the prompt is stored, but not the window rows of the token after it.
	StopWindow
	// StopCollision: another page has the hash of the next page; that page is not used.
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

// String returns the reason in words.
func (s Stop) String() string {
	if s < Stops {
		return stopNames[s]
	}
	return fmt.Sprintf("Stop(%d)", uint8(s))
}

// Match is the answer of a lookup.
type Match struct {
	// Tokens and Pages state how far the prompt matched. Tokens is a whole number of pages.
	Tokens, Pages int
	// Prompt is the number of tokens looked up.
	Prompt int
	// Stop is the reason why the lookup matched no further.
	Stop Stop
	// At is the token at which the lookup stopped: the first different token for StopDifferent, else Tokens.
	At int
}

// String describes the match in one line.
func (m Match) String() string {
	return fmt.Sprintf("matched %d of %d tokens (%d pages), stopped at token %d: %v", m.Tokens, m.Prompt, m.Pages, m.At,
		m.Stop)
}
