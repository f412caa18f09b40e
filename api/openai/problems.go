package openai

import (
	"fmt"
	"strings"
)

// problems collects what is wrong with one request, first things first, up to maxProblems.
type problems struct {
	list    []Problem
	omitted int
}

// full says that further problems are only counted; callers then need not format them.
func (p *problems) full() bool { return len(p.list) >= maxProblems }

func (p *problems) add(code Code, param, format string, args ...any) {
	if p.full() {
		p.omitted++
		return
	}
	p.list = append(p.list, Problem{Param: param, Code: code, Message: fmt.Sprintf(format, args...)})
}

// addNew is for checks that run after decoding: a field that could not be read is already reported, and everything said
// about its empty value, or about the value around it, would be noise.
func (p *problems) addNew(code Code, param, format string, args ...any) {
	for _, old := range p.list {
		if within(old.Param, param) {
			return
		}
	}
	p.add(code, param, format, args...)
}

// within says whether path a is path b or leads to something inside b.
func within(a, b string) bool {
	rest, ok := strings.CutPrefix(a, b)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func (p *problems) err() *Error {
	if len(p.list) == 0 {
		return nil
	}
	return joinProblems(p.list, p.omitted)
}

// verdict runs a check on its own.
func verdict(check func(*problems)) *Error {
	var p problems
	check(&p)
	return p.err()
}

// wantRange reports a number outside [lo, hi]. NaN is outside every range.
func wantRange[N int | int64 | float64](p *problems, param string, v *N, lo, hi N) {
	if v != nil && !(*v >= lo && *v <= hi) {
		p.addNew(CodeOutOfRange, param, "%v is not in [%v, %v]", *v, lo, hi)
	}
}

// wantAtMost reports a collection that is too large.
func wantAtMost(p *problems, param string, count, most int, what string) bool {
	if count > most {
		p.addNew(CodeTooMany, param, "%d %s, at most %d are supported", count, what, most)
		return false
	}
	return true
}

// wantShort reports a string that is too long.
func wantShort(p *problems, param, value string, most int) {
	if len(value) > most {
		p.addNew(CodeTooLong, param, "%d bytes, at most %d are supported", len(value), most)
	}
}
