package wire

import (
	"fmt"
	"strings"
)

// Problems collects the errors of one request, in order, up to maxProblems.
type Problems struct {
	list    []Problem
	omitted int
}

// Full reports whether further problems are only counted; callers then need not format them.
func (p *Problems) Full() bool { return len(p.list) >= maxProblems }

// Add reports a problem of a field.
func (p *Problems) Add(code Code, param, format string, args ...any) {
	if p.Full() {
		p.omitted++
		return
	}
	p.list = append(p.list, Problem{Param: param, Code: code, Message: fmt.Sprintf(format, args...)})
}

// AddNew reports a problem that a check after decoding has found. It does nothing if the field could not be decoded:
// that is already reported, and a message about its empty value, or about the value that contains it, would not help.
func (p *Problems) AddNew(code Code, param, format string, args ...any) {
	for _, old := range p.list {
		if within(old.Param, param) {
			return
		}
	}
	p.Add(code, param, format, args...)
}

// within reports whether path a is path b or leads to something inside b.
func within(a, b string) bool {
	rest, ok := strings.CutPrefix(a, b)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Empty reports whether no problem was reported.
func (p *Problems) Empty() bool { return len(p.list) == 0 }

func (p *Problems) err() *Error {
	if len(p.list) == 0 {
		return nil
	}
	return joinProblems(p.list, p.omitted)
}

// Verdict runs a single check and returns its problems as an error, or nil.
func Verdict(check func(*Problems)) *Error {
	var p Problems
	check(&p)
	return p.err()
}

// WantRange reports a number outside [lo, hi]. NaN is outside every range.
func WantRange[N int | int64 | float64](p *Problems, param string, v *N, lo, hi N) {
	if v != nil && !(*v >= lo && *v <= hi) {
		p.AddNew(CodeOutOfRange, param, "%v is not in [%v, %v]", *v, lo, hi)
	}
}

// WantAtMost reports a collection that is too large.
func WantAtMost(p *Problems, param string, count, most int, what string) bool {
	if count > most {
		p.AddNew(CodeTooMany, param, "%d %s, at most %d are supported", count, what, most)
		return false
	}
	return true
}

// WantShort reports a string that is too long.
func WantShort(p *Problems, param, value string, most int) {
	if len(value) > most {
		p.AddNew(CodeTooLong, param, "%d bytes, at most %d are supported", len(value), most)
	}
}
