package wire

import (
	"fmt"
	"strings"
)

// Problems collects the problems of a request, in order, at most maxProblems of them.
type Problems struct {
	list    []Problem
	omitted int
}

// Full reports whether maxProblems were collected. Further problems are only counted, so callers need not format them.
func (p *Problems) Full() bool { return len(p.list) >= maxProblems }

// Add adds a problem of a field.
func (p *Problems) Add(code Code, param, format string, args ...any) {
	if p.Full() {
		p.omitted++
		return
	}
	p.list = append(p.list, Problem{Param: param, Code: code, Message: fmt.Sprintf(format, args...)})
}

// AddNew adds a problem that was found after decoding. It does nothing if decoding has reported a problem for the
// field, or for a field that contains it or is inside it.
func (p *Problems) AddNew(code Code, param, format string, args ...any) {
	for _, old := range p.list {
		if within(old.Param, param) {
			return
		}
	}
	p.Add(code, param, format, args...)
}

// within reports whether path a is path b or is inside b.
func within(a, b string) bool {
	rest, ok := strings.CutPrefix(a, b)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Empty reports whether there are no problems.
func (p *Problems) Empty() bool { return len(p.list) == 0 }

func (p *Problems) err() *Error {
	if len(p.list) == 0 {
		return nil
	}
	return joinProblems(p.list, p.omitted)
}

// Verdict calls check and returns the problems as an error, or nil if there are none.
func Verdict(check func(*Problems)) *Error {
	var p Problems
	check(&p)
	return p.err()
}

// WantRange adds a problem if the number is outside [lo, hi] or NaN.
func WantRange[N int | int64 | float64](p *Problems, param string, v *N, lo, hi N) {
	if v != nil && !(*v >= lo && *v <= hi) {
		p.AddNew(CodeOutOfRange, param, "%v is not in [%v, %v]", *v, lo, hi)
	}
}

// WantAtMost adds a problem, and returns false, if count exceeds most.
func WantAtMost(p *Problems, param string, count, most int, what string) bool {
	if count > most {
		p.AddNew(CodeTooMany, param, "%d %s, at most %d are supported", count, what, most)
		return false
	}
	return true
}

// WantShort adds a problem if the string has more than most bytes.
func WantShort(p *Problems, param, value string, most int) {
	if len(value) > most {
		p.AddNew(CodeTooLong, param, "%d bytes, at most %d are supported", len(value), most)
	}
}
