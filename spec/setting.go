package spec

import (
	"errors"
	"fmt"
	"strconv"
)

// Most is the longest chain of drafts.
const Most = 7

// ErrSetting reports a setting that is none.
var ErrSetting = errors.New("spec: bad setting")

// Setting is what the user asked about drafting. The zero value is auto.
type Setting struct {
	kind kind
	n    int // of fixed
}

type kind uint8

const (
	auto kind = iota
	off
	fixed
)

// Auto drafts as many tokens as pay for each request, and none where the checkpoint cannot draft.
func Auto() Setting { return Setting{} }

// Off never drafts.
func Off() Setting { return Setting{kind: off} }

// Fixed always drafts n tokens.
func Fixed(n int) (Setting, error) {
	if n < 1 || n > Most {
		return Setting{}, fmt.Errorf("%w: %d drafts; want 1 to %d, auto or off", ErrSetting, n, Most)
	}
	return Setting{kind: fixed, n: n}, nil
}

// Parse reads auto, off or a number of drafts; nothing is auto.
func Parse(text string) (Setting, error) {
	switch text {
	case "", "auto":
		return Auto(), nil
	case "off":
		return Off(), nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return Setting{}, fmt.Errorf("%w: %q; want auto, off, or a number of drafts from 1 to %d", ErrSetting, text, Most)
	}
	return Fixed(n)
}

// String is the setting as Parse reads it.
func (s Setting) String() string {
	switch s.kind {
	case off:
		return "off"
	case fixed:
		return strconv.Itoa(s.n)
	}
	return "auto"
}

// Drafts is the longest chain the setting allows; 0 when it is off.
func (s Setting) Drafts() int {
	switch s.kind {
	case off:
		return 0
	case fixed:
		return s.n
	}
	return Most
}

// Insists reports whether the user asked for a number, which then neither adapts nor gives way silently.
func (s Setting) Insists() bool { return s.kind == fixed }

// MarshalText writes what String says.
func (s Setting) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what Parse reads.
func (s *Setting) UnmarshalText(text []byte) (err error) {
	*s, err = Parse(string(text))
	return err
}
