package jinja

import (
	"strings"
	"time"
)

// interp is the state of one rendering.
type interp struct {
	limits  Limits
	steps   int
	depth   int
	memory  int
	out     *strings.Builder // where output goes now: the result, or a block being captured
	root    *scope
	globals map[string]Value
	now     func() time.Time
}

// scope holds the variables of a loop round, a macro call or the template itself. Writes go to the innermost scope;
// reads look outwards.
type scope struct {
	vars   map[string]Value
	parent *scope
}

func (s *scope) child() *scope { return &scope{parent: s} }

func (s *scope) set(name string, v Value) {
	if s.vars == nil {
		s.vars = make(map[string]Value, 4)
	}
	s.vars[name] = v
}

func newInterp(limits Limits, o Options) *interp {
	in := &interp{limits: limits, out: &strings.Builder{}, now: o.Now, globals: globalTable}
	// The values passed in are one scope further out than the template's own, so that it may shadow but not change
	// them.
	in.root = &scope{parent: &scope{vars: o.Vars}}
	return in
}

func (in *interp) lookup(s *scope, name string) Value {
	for ; s != nil; s = s.parent {
		if v, ok := s.vars[name]; ok {
			return v
		}
	}
	if v, ok := in.globals[name]; ok {
		return v
	}
	return Undefined{"'" + name + "'"}
}

// step counts one unit of work.
func (in *interp) step() error {
	if in.steps++; in.steps > in.limits.Steps {
		return limitf("more than %d steps", in.limits.Steps)
	}
	return nil
}

// bytesPerStep is how many bytes of text count as one step where an operation reads a whole string.
const bytesPerStep = 64

// touch counts the work of reading values from end to end: without it, a search in a long string would cost one step.
func (in *interp) touch(values ...Value) error {
	for _, v := range values {
		if s, ok := v.(string); ok {
			in.steps += len(s) / bytesPerStep
		}
	}
	return in.step()
}

// charge counts memory about to be allocated.
func (in *interp) charge(bytes int) error {
	if bytes > in.limits.Memory-in.memory {
		return limitf("more than %d bytes of values", in.limits.Memory)
	}
	in.memory += bytes
	return nil
}

// valueBytes is what an item of a list costs.
const valueBytes = 16

func (in *interp) newList(items []Value) (Value, error) {
	return &List{Items: items}, in.charge(valueBytes * len(items))
}

func (in *interp) newString(s string) (Value, error) { return s, in.charge(len(s)) }

func (in *interp) write(s string) error {
	if in.out.Len()+len(s) > in.limits.Output {
		return limitf("more than %d bytes of output", in.limits.Output)
	}
	in.out.WriteString(s)
	return in.charge(len(s))
}

// capture runs statements and returns their output instead of writing it.
func (in *interp) capture(body []stmt, s *scope) (string, error) {
	outer := in.out
	in.out = &strings.Builder{}
	defer func() { in.out = outer }()
	if _, err := in.run(body, s); err != nil {
		return "", err
	}
	return in.out.String(), nil
}

// descend counts a level of nesting; the caller decrements depth.
func (in *interp) descend() error {
	in.depth++
	if in.depth > in.limits.Depth {
		return limitf("nested deeper than %d evaluations", in.limits.Depth)
	}
	return in.step()
}
