package grammar

import (
	"errors"
	"sort"
	"unicode/utf8"
)

// runeDFA is a deterministic automaton over the characters of a string's value. State 0 is the start. Every state can
// reach an accepting state.
type runeDFA struct {
	edges  [][]runeEdge // edges of each state, sorted, disjoint and without surrogates
	accept []bool

	ascii []*[utf8.RuneSelf]int32           // [states] cached next states by ASCII character
	kinds []*[kindsEnd - kindLower]kindStep // [states] cached next states by kind of character
}

// runeEdge is the transition for every character from lo to hi to one state.
type runeEdge struct {
	lo, hi rune
	to     int32
}

// effort is the remaining number of edges and instructions that may be examined for all patterns of one schema. A
// schema with many costly patterns is refused early instead of compiling for minutes.
type effort struct{ left int }

// maxEffort takes about a tenth of a second. Formats are compiled only once and do not count.
const maxEffort = 4_000_000

func (e *effort) spend(n int) error {
	if e.left -= n; e.left < 0 {
		return errPatternStates
	}
	return nil
}

// errPatternStates is converted by callers to a SchemaError with the JSON pointer.
var errPatternStates = errors.New("too complex")

// next returns the state after r; -1 if r is not accepted.
func (d *runeDFA) next(state int32, r rune) int32 {
	if r >= utf8.RuneSelf {
		return d.find(state, r)
	}
	if d.ascii == nil {
		d.ascii = make([]*[utf8.RuneSelf]int32, len(d.edges))
	}
	table := d.ascii[state]
	if table == nil {
		table = new([utf8.RuneSelf]int32)
		for c := range table {
			table[c] = d.find(state, rune(c))
		}
		d.ascii[state] = table
	}
	return table[r]
}

func (d *runeDFA) find(state int32, r rune) int32 {
	list := d.edges[state]
	if i := d.search(state, r); i < len(list) && list[i].lo <= r {
		return list[i].to
	}
	return -1
}

// search returns the index of the first edge of a state whose end is at least r.
func (d *runeDFA) search(state int32, r rune) int {
	list := d.edges[state]
	return sort.Search(len(list), func(i int) bool { return list[i].hi >= r })
}

// meets reports whether any character from lo to hi has a next state.
func (d *runeDFA) meets(state int32, lo, hi rune) bool {
	list := d.edges[state]
	i := d.search(state, lo)
	return i < len(list) && list[i].lo <= hi
}

// matches reports whether the automaton accepts a whole string.
func (d *runeDFA) matches(s string) bool {
	state := int32(0)
	for _, r := range s {
		if state = d.next(state, r); state < 0 {
			return false
		}
	}
	return d.accept[state]
}

// appendValid adds an edge for a range of characters, without surrogates, It merges the edge with an adjacent one to
// the same state.
func appendValid(list []runeEdge, lo, hi rune, to int32) []runeEdge {
	const firstSurrogate, lastSurrogate = 0xd800, 0xdfff
	if lo < firstSurrogate && hi > lastSurrogate {
		list = appendValid(list, lo, firstSurrogate-1, to)
		return appendValid(list, lastSurrogate+1, hi, to)
	}
	if lo >= firstSurrogate && lo <= lastSurrogate {
		lo = lastSurrogate + 1
	}
	if hi >= firstSurrogate && hi <= lastSurrogate {
		hi = firstSurrogate - 1
	}
	if lo > hi {
		return list
	}
	if n := len(list); n > 0 && list[n-1].to == to && list[n-1].hi+1 == lo {
		list[n-1].hi = hi
		return list
	}
	return append(list, runeEdge{lo, hi, to})
}

// intersect returns the automaton of the strings that both accept.
func (d *runeDFA) intersect(o *runeDFA, e *effort) (*runeDFA, error) {
	b := newBuilder[[2]int32](e)
	b.state([2]int32{0, 0})
	for at := 0; at < len(b.keys); at++ {
		x, y := b.keys[at][0], b.keys[at][1]
		var list []runeEdge
		i, j := 0, 0
		for i < len(d.edges[x]) && j < len(o.edges[y]) {
			p, q := d.edges[x][i], o.edges[y][j]
			if lo, hi := max(p.lo, q.lo), min(p.hi, q.hi); lo <= hi {
				list = appendValid(list, lo, hi, b.state([2]int32{p.to, q.to}))
			}
			if p.hi < q.hi {
				i++
			} else {
				j++
			}
		}
		if err := b.set(list, d.accept[x] && o.accept[y]); err != nil {
			return nil, err
		}
	}
	return b.trimmed()
}

// limit returns the automaton of the strings of least to most characters that d accepts; most may be noLimit.
func (d *runeDFA) limit(least, most uint64, e *effort) (*runeDFA, error) {
	type key struct {
		state int32
		count uint64
	}
	b := newBuilder[key](e)
	b.state(key{0, 0})
	for at := 0; at < len(b.keys); at++ {
		k := b.keys[at]
		var list []runeEdge
		if k.count < most {
			count := k.count + 1
			if most == noLimit {
				count = min(count, least)
			}
			for _, e := range d.edges[k.state] {
				list = appendValid(list, e.lo, e.hi, b.state(key{e.to, count}))
			}
		}
		if err := b.set(list, d.accept[k.state] && k.count >= least); err != nil {
			return nil, err
		}
	}
	return b.trimmed()
}

// distances returns the minimum number of characters from each state to an accepting one, at most maxCounted.
func (d *runeDFA) distances() []uint16 {
	out := make([]uint16, len(d.edges))
	back := make([][]int32, len(d.edges))
	var queue []int32
	for s, list := range d.edges {
		for _, e := range list {
			back[e.to] = append(back[e.to], int32(s))
		}
		out[s] = maxCounted
		if d.accept[s] {
			out[s] = 0
			queue = append(queue, int32(s))
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, s := range back[queue[0]] {
			if next := out[queue[0]] + 1; next < out[s] { // there are far fewer states than maxCounted
				out[s] = next
				queue = append(queue, s)
			}
		}
	}
	return out
}

// longest returns the length of the longest accepted string, noLimit if there is no maximum.
func (d *runeDFA) longest() uint64 {
	const open, closed = 1, 2
	mark := make([]byte, len(d.edges))
	length := make([]uint64, len(d.edges))
	var visit func(s int32) bool
	visit = func(s int32) bool {
		mark[s] = open
		for _, e := range d.edges[s] {
			if mark[e.to] == open || mark[e.to] == 0 && !visit(e.to) {
				return false
			}
			length[s] = max(length[s], length[e.to]+1)
		}
		mark[s] = closed
		return true
	}
	if !visit(0) {
		return noLimit
	}
	return length[0]
}

// builder assigns numbers to the states of an automaton under construction. A state is identified by a key of type K.
type builder[K comparable] struct {
	dfa   runeDFA
	keys  []K
	index map[K]int32
	work  *effort
}

func newBuilder[K comparable](e *effort) *builder[K] {
	return &builder[K]{index: map[K]int32{}, work: e}
}

func (b *builder[K]) state(k K) int32 {
	id, ok := b.index[k]
	if !ok {
		id = int32(len(b.keys))
		b.index[k] = id
		b.keys = append(b.keys, k)
	}
	return id
}

// set defines the edges of the next state in order.
func (b *builder[K]) set(list []runeEdge, accept bool) error {
	b.dfa.edges = append(b.dfa.edges, list)
	b.dfa.accept = append(b.dfa.accept, accept)
	if len(b.keys) > MaxPatternStates {
		return errPatternStates
	}
	return b.work.spend(16 + 4*len(list))
}

// trimmed removes the states that cannot reach an accepting state. It returns nil if no string is accepted.
func (b *builder[K]) trimmed() (*runeDFA, error) {
	d := &b.dfa
	back := make([][]int32, len(d.edges))
	for s, list := range d.edges {
		for _, e := range list {
			back[e.to] = append(back[e.to], int32(s))
		}
	}
	alive := make([]bool, len(d.edges))
	var queue []int32
	for s, ok := range d.accept {
		if ok {
			alive[s] = true
			queue = append(queue, int32(s))
		}
	}
	for len(queue) > 0 {
		s := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, p := range back[s] {
			if !alive[p] {
				alive[p] = true
				queue = append(queue, p)
			}
		}
	}
	if !alive[0] {
		return nil, nil
	}
	number := make([]int32, len(d.edges))
	out := &runeDFA{}
	for s := range d.edges {
		if alive[s] {
			number[s] = int32(len(out.accept))
			out.accept = append(out.accept, d.accept[s])
		}
	}
	for s, list := range d.edges {
		if !alive[s] {
			continue
		}
		var kept []runeEdge
		for _, e := range list {
			if alive[e.to] {
				kept = appendValid(kept, e.lo, e.hi, number[e.to])
			}
		}
		out.edges = append(out.edges, kept)
	}
	return out, nil
}
