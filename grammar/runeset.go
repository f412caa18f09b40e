package grammar

import (
	"slices"
	"unicode/utf8"
)

// everyString returns the automaton that accepts all strings.
func everyString() *runeDFA {
	return &runeDFA{edges: [][]runeEdge{appendValid(nil, 0, utf8.MaxRune, 0)}, accept: []bool{true}}
}

// listedStrings returns the automaton of the strings in a list, or nil if the list is empty.
func listedStrings(list []string) *runeDFA {
	if len(list) == 0 {
		return nil
	}
	texts := make([][]rune, len(list))
	for i, s := range list {
		texts[i] = []rune(s)
	}
	slices.SortFunc(texts, func(a, b []rune) int { return slices.Compare(a, b) })
	d := &runeDFA{}
	add := func() int32 {
		d.edges = append(d.edges, nil)
		d.accept = append(d.accept, false)
		return int32(len(d.accept) - 1)
	}
	add()
	for _, text := range texts {
		at := int32(0)
		for _, r := range text {
			list := d.edges[at]
			if n := len(list); n > 0 && list[n-1].lo == r { // the runes are sorted
				at = list[n-1].to
				continue
			}
			next := add()
			d.edges[at] = append(d.edges[at], runeEdge{r, r, next})
			at = next
		}
		d.accept[at] = true
	}
	return d
}

// except returns the automaton of the strings that d accepts and o does not. Either may be nil, which accepts nothing.
func (d *runeDFA) except(o *runeDFA, e *effort) (*runeDFA, error) {
	if d == nil || o == nil {
		return d, nil
	}
	b := newBuilder[[2]int32](e)
	b.state([2]int32{0, 0})
	for at := 0; at < len(b.keys); at++ {
		x, y := b.keys[at][0], b.keys[at][1] // y is -1 after o has rejected the text
		var list []runeEdge
		for _, p := range d.edges[x] {
			lo := p.lo
			if y >= 0 {
				for _, q := range o.edges[y] {
					if q.hi < lo || q.lo > p.hi {
						continue
					}
					if lo < q.lo {
						list = appendValid(list, lo, q.lo-1, b.state([2]int32{p.to, -1}))
					}
					list = appendValid(list, max(lo, q.lo), min(p.hi, q.hi), b.state([2]int32{p.to, q.to}))
					lo = q.hi + 1
				}
			}
			if lo <= p.hi {
				list = appendValid(list, lo, p.hi, b.state([2]int32{p.to, -1}))
			}
		}
		if err := b.set(list, d.accept[x] && (y < 0 || !o.accept[y])); err != nil {
			return nil, err
		}
	}
	return b.trimmed()
}

// union returns the automaton of the strings that d or o accepts. Either may be nil, which accepts nothing.
func (d *runeDFA) union(o *runeDFA, e *effort) (*runeDFA, error) {
	if d == nil {
		return o, nil
	}
	neither, err := everyString().except(d, e)
	if err != nil {
		return nil, err
	}
	if neither, err = neither.except(o, e); err != nil {
		return nil, err
	}
	return everyString().except(neither, e)
}

// patternKey accepts a property name that matches an automaton, with quotes and colon, and at most one space after it.
type patternKey struct {
	name patternLeaf
}

func (k *patternKey) start() uint64 { return k.name.start() }

func (k *patternKey) step(q uint64, b byte) (uint64, bool) {
	switch q & 0xff {
	case strEnd:
		return keyDone, b == ':'
	case keyDone:
		return keySpaced, b == ' '
	case keySpaced:
		return 0, false
	}
	return k.name.step(q, b)
}

func (k *patternKey) accepts(q uint64) bool {
	mode := q & 0xff
	return mode == keyDone || mode == keySpaced
}

func (k *patternKey) open(q uint64) bool { return q&0xff != keySpaced }

func (k *patternKey) class(q uint64, _ int) maskKey { return maskKey{familyNone, q} }
