package grammar

import (
	"cmp"
	"slices"
	"strings"
)

// Ignored is a keyword of a schema that is not enforced: unknown, or known but not supported.
type Ignored struct {
	Pointer string // JSON pointer of the schema object, "" for the root
	Keyword string
	Reason  string
	Asserts bool // whether the output may violate the keyword; false if the keyword is unknown
}

// Ignored returns the keywords that the grammar does not enforce, in the order of the pointers. It is empty with
// Options.Strict.
func (g *Grammar) Ignored() []Ignored { return slices.Clone(g.ignored) }

// origin is a keyword and the location of its schema.
type origin struct {
	pointer, keyword string
}

// skipped lists the keywords that a compilation ignores: those that earlier attempts could not enforce, and unknown
// keywords found while parsing.
type skipped struct {
	strict bool
	at     map[origin]Ignored
	all    map[string]bool // keywords that are ignored everywhere
}

// maxAttempts is the maximum number of attempts in which a keyword is ignored at single locations. After that it is
// ignored everywhere.
const maxAttempts = 8

func newSkipped(strict bool) *skipped {
	return &skipped{strict: strict, at: map[origin]Ignored{}, all: map[string]bool{}}
}

func (s *skipped) has(pointer, keyword string) bool {
	i, ok := s.at[origin{pointer, keyword}]
	return ok && i.Asserts || s.all[keyword]
}

// below reports whether a keyword is ignored in a schema or inside it.
func (s *skipped) below(pointer string) bool {
	for o, i := range s.at {
		if i.Asserts && strings.HasPrefix(o.pointer, pointer) {
			return true
		}
	}
	return false
}

// note records a keyword that has no effect or is unknown.
func (s *skipped) note(pointer, keyword, reason string, asserts bool) {
	o := origin{pointer, keyword}
	if _, ok := s.at[o]; !ok {
		s.at[o] = Ignored{pointer, keyword, reason, asserts}
	}
}

// add makes the next attempt ignore a keyword. It returns false if this has no effect.
func (s *skipped) add(o origin, reason string) bool {
	if s.strict || o.keyword == "" || s.has(o.pointer, o.keyword) {
		return false
	}
	s.at[o] = Ignored{o.pointer, o.keyword, reason, true}
	// Otherwise additionalProperties would refuse values that patternProperties allows.
	if o.keyword == "patternProperties" {
		a := origin{o.pointer, "additionalProperties"}
		s.at[a] = Ignored{a.pointer, a.keyword, "it depends on patternProperties, which is ignored", true}
	}
	if len(s.at) > maxAttempts {
		n := 0
		for other, i := range s.at {
			if i.Asserts && other.keyword == o.keyword {
				n++
			}
		}
		s.all[o.keyword] = n > maxAttempts
	}
	return true
}

func (s *skipped) list() []Ignored {
	var list []Ignored
	for _, i := range s.at {
		list = append(list, i)
	}
	slices.SortFunc(list, func(a, b Ignored) int {
		return cmp.Or(strings.Compare(a.Pointer, b.Pointer), strings.Compare(a.Keyword, b.Keyword))
	})
	return list
}
