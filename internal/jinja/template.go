package jinja

import (
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"sparrow/internal/mark"
)

// Limits limits the resources of one template. A zero field takes the value of DefaultLimits.
type Limits struct {
	Steps  int // maximum number of evaluated expressions, executed statements and loop rounds
	Depth  int // maximum nesting of evaluations, macro calls included
	Output int // maximum bytes of rendered text
	Memory int // maximum bytes of text and lists that are made, including those no longer in use
	Source int // maximum bytes of template source
}

// DefaultLimits are far above the needs of chat templates: a thousand messages take about a million steps.
var DefaultLimits = Limits{Steps: 50_000_000, Depth: 1500, Output: 64 << 20, Memory: 512 << 20, Source: 1 << 20}

// Template is a compiled template. It is immutable and safe for concurrent use.
type Template struct {
	src    string
	body   []stmt
	limits Limits
}

// Options holds the values and services that a rendering may use.
type Options struct {
	// Vars holds the variables of the template.
	Vars map[string]Value
	// Now is the clock for strftime_now; without one the function fails.
	Now func() time.Time
	// Input is the size of the values in bytes: the limits of a template grow with it ([Limits.For]).
	Input int
}

// Compile parses a template. Errors are *Error values and wrap ErrSyntax, ErrUnsupported or ErrLimit.
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

// The limits of a rendering for each byte of its input, and for an empty input. A template that reads every character
// of a message several times stays far below; an endless loop is stopped within a fraction of a second.
const (
	baseSteps, stepsPerByte   = 2_000_000, 8
	baseMemory, memoryPerByte = 32 << 20, 64
	baseOutput, outputPerByte = 4 << 20, 8
)

// For returns the limits for rendering values of the given number of bytes, at most those of l.
func (l Limits) For(input int) Limits {
	l.Steps = min(l.Steps, baseSteps+stepsPerByte*input)
	l.Memory = min(l.Memory, baseMemory+memoryPerByte*input)
	l.Output = min(l.Output, baseOutput+outputPerByte*input)
	return l
}

// Render runs the template. Errors are *Error values and wrap ErrRuntime, ErrRaised, ErrUnsupported or ErrLimit.
//
// Marked spans of the result are characters that come from values made by Mark.
func (t *Template) Render(o Options) (mark.Text, error) {
	in := newInterp(t.limits.For(o.Input), o)
	if err := in.render(t.body); err != nil {
		return mark.Text{}, t.locate(&fault{in.at, err})
	}
	return in.out.Text(), nil
}

// Names returns the free names that a template mentions, assigned by it or not. It shows, for example, whether a
// template uses tools.
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

// locate converts an offset in the source to a line and a column.
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
