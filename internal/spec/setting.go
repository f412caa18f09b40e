package spec

import (
	"errors"
	"fmt"
	"strconv"
)

// MaxDrafts is the maximum length of a chain of drafts.
const MaxDrafts = 7

// ErrSetting reports an invalid setting.
var ErrSetting = errors.New("spec: bad setting")

// Setting is the user's setting for drafting. The zero value is the setting auto.
type Setting struct {
	kind kind
	n    int // number of drafts of the setting fixed
}

type kind uint8

const (
	auto kind = iota
	off
	fixed
)

// Auto returns the setting that adapts the draft length of each request to the fastest one; 0 if the checkpoint has no
// drafting layer.
func Auto() Setting { return Setting{} }

// Off never drafts.
func Off() Setting { return Setting{kind: off} }

// Fixed returns the setting that always drafts n tokens.
func Fixed(n int) (Setting, error) {
	if n < 1 || n > MaxDrafts {
		return Setting{}, fmt.Errorf("%w: %d drafts; want 1 to %d (with a DSpark head at most its "+
			"block, which is 5 in the released models), auto or off", ErrSetting, n, MaxDrafts)
	}
	return Setting{kind: fixed, n: n}, nil
}

// Parse parses auto, off or a number of drafts; the empty text means auto.
func Parse(text string) (Setting, error) {
	switch text {
	case "", "auto":
		return Auto(), nil
	case "off":
		return Off(), nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return Setting{}, fmt.Errorf("%w: %q is not valid; want auto, off, or a number of drafts from 1 to %d",
			ErrSetting, text, MaxDrafts)
	}
	return Fixed(n)
}

// String returns the setting in the form that Parse accepts.
func (s Setting) String() string {
	switch s.kind {
	case off:
		return "off"
	case fixed:
		return strconv.Itoa(s.n)
	}
	return "auto"
}

// Drafts returns the maximum chain length that the setting allows; 0 if it is off.
func (s Setting) Drafts() int {
	switch s.kind {
	case off:
		return 0
	case fixed:
		return s.n
	}
	return MaxDrafts
}

// IsFixed reports whether the user set a number of drafts. A fixed number is not adapted; if it is not supported, that
// is an error.
func (s Setting) IsFixed() bool { return s.kind == fixed }

// MarshalText returns the form of String.
func (s Setting) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the form of Parse.
func (s *Setting) UnmarshalText(text []byte) (err error) {
	*s, err = Parse(string(text))
	return err
}
