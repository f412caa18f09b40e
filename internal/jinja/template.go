package jinja

import (
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"sparrow/internal/mark"
)

// Limits limits the resources of one template. Zero means the value in DefaultLimits.
type Limits struct {
	Steps  int // maximum number of evaluated expressions, executed statements and loop iterations
	Depth  int // maximum nesting of evaluations, including macro calls
	Output int // maximum bytes of rendered text
	Memory int // maximum bytes of all allocated text and lists, including those no longer in use
	Source int // maximum bytes of template source
}

// DefaultLimits are far above what chat templates need: about a million steps for a thousand messages.
var DefaultLimits = Limits{Steps: 50_000_000, Depth: 1500, Output: 64 << 20, Memory: 512 << 20, Source: 1 << 20}

// Template is a compiled template. It is immutable and safe for concurrent use.
type Template struct {
	src    string
	body   []stmt
	limits Limits
}

// Options holds the inputs of a rendering.
type Options struct {
	// Vars holds the variables of the template.
	Vars map[string]Value
	// Now is the clock for strftime_now; if it is nil, that function fails.
	Now func() time.Time
	// Input is the size of Vars in bytes. Limits grow with it ([Limits.For]).
	Input int
}

// Compile parses a template. Errors are of type *Error and wrap ErrSyntax, ErrUnsupported or ErrLimit.
func Compile(src string, limits Limits) (*Template, error) {
	limits = limits.orDefault()
	if len(src) > limits.Source {
		return nil, &Error{1, 1, limitf("source of %d bytes is longer than %d", len(src), limits.Source)}
	}
	t := &Template{src: normalise(src), limits: limits}
	tokens, err := lex(t.src)
	if err != nil {
		return nil, t.locate(err)
	}
	p := &parser{tokens: tokens}
	if t.body, _ = p.body(); p.err != nil {
		return nil, t.locate(p.err)
	}
	return t, nil
}

func (l Limits) orDefault() Limits {
	pick := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	pick(&l.Steps, DefaultLimits.Steps)
	pick(&l.Depth, DefaultLimits.Depth)
	pick(&l.Output, DefaultLimits.Output)
	pick(&l.Memory, DefaultLimits.Memory)
	pick(&l.Source, DefaultLimits.Source)
	return l
}

// Limits of a rendering: for an empty input, and additionally per byte of input. Templates that read every character of
// a message several times stay far below. An endless loop fails after a fraction of a second.
const (
	baseSteps, stepsPerByte   = 2_000_000, 8
	baseMemory, memoryPerByte = 32 << 20, 64
	baseOutput, outputPerByte = 4 << 20, 8
)

// For returns the limits for rendering values of input bytes; they do not exceed l.
func (l Limits) For(input int) Limits {
	l.Steps = min(l.Steps, baseSteps+stepsPerByte*input)
	l.Memory = min(l.Memory, baseMemory+memoryPerByte*input)
	l.Output = min(l.Output, baseOutput+outputPerByte*input)
	return l
}

// Render runs the template. Errors are of type *Error and wrap ErrRuntime, ErrRaised, ErrUnsupported or ErrLimit.
//
// The marked spans of the result come from values that Mark returned.
func (t *Template) Render(o Options) (mark.Text, error) {
	in := newInterp(t.limits.For(o.Input), o)
	if err := in.render(t.body); err != nil {
		return mark.Text{}, t.locate(&fault{in.at, err})
	}
	return in.out.Text(), nil
}

// Names returns the variables that a template mentions, including those that it assigns. It shows, for example, whether
// a template uses tools.
func (t *Template) Names() map[string]bool {
	names := map[string]bool{}
	tokens, err := lex(t.src)
	if err != nil {
		return names
	}
	for i, tok := range tokens {
		if tok.kind != tokName {
			continue
		}
		if i > 0 && tokens[i-1].kind == tokOperator && (tokens[i-1].text == "." || tokens[i-1].text == "|") {
			continue
		}
		names[tok.text] = true
	}
	return names
}

// locate adds the line and column to an error with an offset in the source.
func (t *Template) locate(err error) error {
	var f *fault
	if !errors.As(err, &f) {
		return &Error{1, 1, err}
	}
	before := t.src[:min(int(f.at), len(t.src))]
	line := strings.Count(before, "\n") + 1
	column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
	return &Error{line, column, f.err}
}
