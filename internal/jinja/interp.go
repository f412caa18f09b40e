package jinja

import (
	"time"

	"sparrow/internal/mark"
)

// interp is the state of one rendering.
type interp struct {
	limits  Limits
	steps   int
	depth   int
	at      pos // position of the innermost expression or statement that is being evaluated
	memory  int
	out     *mark.Builder // destination of output: the result, or a block that is being captured
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
	in := &interp{limits: limits, out: &mark.Builder{}, now: o.Now, globals: globalTable}
	// The given values are in a scope outside the template's own, so that the template may shadow but not change them.
	in.root = &scope{parent: &scope{vars: o.Vars}}
	return in
}

// render runs a template from beginning to end.
func (in *interp) render(body []stmt) (err error) {
	defer rescue(&err)
	in.run(body, in.root)
	return nil
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
func (in *interp) step() {
	if in.steps++; in.steps > in.limits.Steps {
		panic(failure{limitf("more than %d steps", in.limits.Steps)})
	}
}

// bytesPerStep is the number of bytes of text that count as one step if an operation reads a whole string.
const bytesPerStep = 64

// touch counts the work of reading values from end to end: without it, a search in a long string would cost one step.
// Lists are read item by item by code that counts steps; a tuple may be read at once, as a key.
func (in *interp) touch(values ...Value) {
	for _, v := range values {
		if s, ok := asString(v); ok {
			in.steps += len(s) / bytesPerStep
		} else if t, ok := v.(*List); ok && t.Tuple {
			in.steps += len(t.Items)
			in.touch(t.Items...)
		}
	}
	in.step()
}

// printed returns the text of a value, and counts its memory if it was allocated for this.
func (in *interp) printed(v Value) mark.Text {
	t := text(v)
	if _, ok := asText(v); !ok {
		in.charge(len(t.String()))
	}
	return t
}

// charge counts memory that is about to be allocated.
func (in *interp) charge(bytes int) {
	if bytes > in.limits.Memory-in.memory {
		panic(failure{limitf("more than %d bytes of values", in.limits.Memory)})
	}
	in.memory += bytes
}

// valueBytes is the memory of one item of a list.
const valueBytes = 16

func (in *interp) newList(items []Value) Value {
	in.charge(valueBytes * len(items))
	return &List{Items: items}
}

func (in *interp) write(t mark.Text) {
	if in.out.Len()+len(t.String()) > in.limits.Output {
		panic(failure{limitf("more than %d bytes of output", in.limits.Output)})
	}
	in.add(in.out, t)
}

// add appends a text to a text under construction, and counts its memory.
func (in *interp) add(b *mark.Builder, t mark.Text) {
	b.Write(t)
	in.charge(len(t.String()) + valueBytes*len(t.Spans()))
}

// capture runs statements and returns their output instead of writing it.
func (in *interp) capture(body []stmt, s *scope) Value {
	outer := in.out
	in.out = &mark.Builder{}
	in.run(body, s)
	captured := in.out.Text()
	in.out = outer
	return textValue(captured)
}

// enter begins the evaluation of a node inside the current one and returns the position of the current one; leave
// ends it.
func (in *interp) enter(at pos) (outer pos) {
	if in.depth++; in.depth > in.limits.Depth {
		panic(failure{limitf("evaluations are nested deeper than %d levels", in.limits.Depth)})
	}
	outer, in.at = in.at, at
	in.step()
	return outer
}

func (in *interp) leave(outer pos) {
	in.depth--
	in.at = outer
}
