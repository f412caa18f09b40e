package jinja

import (
	"time"

	"sparrow/internal/mark"
)

// meter counts the work and the memory of rendering one template, and fails above the limits. Operations on values need
// nothing else of the interpreter.
type meter struct {
	limits Limits
	steps  int
	memory int
}

// interp is the state of rendering one template: it evaluates the nodes of the template.
type interp struct {
	*meter
	depth   int
	at      pos           // position of the innermost node that is being evaluated
	out     *mark.Builder // destination of output: the result, or the text of a captured block
	root    *scope
	globals map[string]Value
	now     func() time.Time
}

// scope holds the variables of a loop iteration, a macro call or the template. Assignments go to the innermost scope; a
// variable is looked up in the enclosing scopes too.
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
	in := &interp{meter: &meter{limits: limits}, out: &mark.Builder{}, now: o.Now, globals: globalTable}
	// The given values are in an outer scope, so that the template can shadow but not change them.
	in.root = &scope{parent: &scope{vars: o.Vars}}
	return in
}

// render executes a template.
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

// step counts one step of work, and fails above the limit.
func (m *meter) step() {
	if m.steps++; m.steps > m.limits.Steps {
		panic(failure{limitf("more than %d steps", m.limits.Steps)})
	}
}

// bytesPerStep is the number of bytes that count as one step in operations that read a whole string.
const bytesPerStep = 64

// touch counts the steps of an operation that reads whole values, such as a search in a long string. Lists need no
// count, because the code that reads their items counts steps; a tuple may be read as a whole, as a key.
func (m *meter) touch(values ...Value) {
	for _, v := range values {
		if s, ok := asString(v); ok {
			m.steps += len(s) / bytesPerStep
		} else if t, ok := v.(*List); ok && t.Tuple {
			m.steps += len(t.Items)
			m.touch(t.Items...)
		}
	}
	m.step()
}

// printed converts a value to text, and counts the memory of the conversion.
func (m *meter) printed(v Value) mark.Text {
	t := text(v)
	if _, ok := asText(v); !ok {
		m.charge(len(t.String()))
	}
	return t
}

// charge counts memory before it is allocated, and fails above the limit.
func (m *meter) charge(bytes int) {
	if bytes > m.limits.Memory-m.memory {
		panic(failure{limitf("more than %d bytes of values", m.limits.Memory)})
	}
	m.memory += bytes
}

// valueBytes is the memory of a list item in bytes.
const valueBytes = 16

func (m *meter) newList(items []Value) Value {
	m.charge(valueBytes * len(items))
	return &List{Items: items}
}

func (in *interp) write(t mark.Text) {
	if in.out.Len()+len(t.String()) > in.limits.Output {
		panic(failure{limitf("more than %d bytes of output", in.limits.Output)})
	}
	in.add(in.out, t)
}

// add appends text to b, and counts the memory of the text.
func (m *meter) add(b *mark.Builder, t mark.Text) {
	b.Write(t)
	m.charge(len(t.String()) + valueBytes*len(t.Spans()))
}

// capture executes statements and returns their output as a value.
func (in *interp) capture(body []stmt, s *scope) Value {
	outer := in.out
	in.out = &mark.Builder{}
	in.run(body, s)
	captured := in.out.Text()
	in.out = outer
	return textValue(captured)
}

// enter begins the evaluation of a nested node and returns the position of the enclosing node; leave ends it.
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
