package grammar

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// compilePattern compiles a regular expression to an automaton over whole strings. As in JSON Schema, a pattern may
// match anywhere in the string unless it is anchored. It returns nil if no string matches.
//
// Patterns have RE2's syntax, without backreferences and lookaround. Constructs that RE2 and ECMA-262 define
// differently have ECMA-262's meaning: the dot, \s and \S, and \u escapes.
func compilePattern(pattern string, e *effort) (*runeDFA, error) {
	if len(pattern) > MaxPatternBytes {
		return nil, fmt.Errorf("%w: a pattern of %d bytes; at most %d are supported", errPatternStates, len(pattern),
			MaxPatternBytes)
	}
	translated, err := fromECMA(pattern)
	if err != nil {
		return nil, err
	}
	tree, err := syntax.Parse(translated, syntax.Perl)
	if err != nil {
		return nil, err
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, err
	}
	for i := range prog.Inst {
		const known = syntax.EmptyBeginText | syntax.EmptyEndText
		if in := &prog.Inst[i]; in.Op == syntax.InstEmptyWidth && syntax.EmptyOp(in.Arg)&^known != 0 {
			return nil, fmt.Errorf("word boundaries and multi-line anchors are not supported; ^ and $ are")
		}
	}
	return determinize(prog, e)
}

// The characters of ECMA-262's \s, and those of \S, as parts of a bracket expression.
const (
	ecmaSpace    = `\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}`
	ecmaNonSpace = `\x00-\x{8}\x{e}-\x{1f}!-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}` +
		`\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{fefe}\x{ff00}-\x{10ffff}`
)

// fromECMA rewrites the escapes that RE2 does not support or interprets differently.
func fromECMA(pattern string) (string, error) {
	var out strings.Builder
	class := false
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		switch {
		case c == '[' && !class:
			class = true
		case c == ']':
			class = false
		}
		if c != '\\' || i+1 == len(pattern) {
			out.WriteByte(c)
			continue
		}
		i++
		switch e := pattern[i]; e {
		case 's', 'S':
			set := ecmaSpace
			if e == 'S' {
				set = ecmaNonSpace
			}
			if class {
				out.WriteString(set)
			} else {
				out.WriteString("[" + set + "]")
			}
		case 'u':
			hex, n := hexEscape(pattern[i+1:])
			if n == 0 {
				return "", fmt.Errorf(`\u at byte %d is not followed by four hexadecimal digits`, i-1)
			}
			out.WriteString(`\x{` + hex + `}`)
			i += n
		default:
			out.WriteByte('\\')
			out.WriteByte(e)
		}
	}
	return out.String(), nil
}

// hexEscape reads the digits of \uXXXX or \u{X...} n is their number of bytes, including braces.
func hexEscape(s string) (hex string, n int) {
	if strings.HasPrefix(s, "{") {
		if end := strings.IndexByte(s, '}'); end > 1 {
			hex, n = s[1:end], end+1
		}
	} else if len(s) >= 4 {
		hex, n = s[:4], 4
	}
	if v, err := strconv.ParseUint(hex, 16, 32); err != nil || v > utf8.MaxRune {
		return "", 0
	}
	return hex, n
}

// A thread of the simulated NFA is 2*i for instruction i, or 2*i+1 after an end-of-text anchor, when no character may
// follow.
type thread = int32

// threadKey is a set of threads as a map key: one byte for the state of the match, then the sorted list, four bytes
// each.
type threadKey string

// determinize converts the program to a deterministic automaton by the subset construction. A match may begin at any
// character, so the program is started again at each. After a complete match any text may follow.
func determinize(prog *syntax.Prog, e *effort) (*runeDFA, error) {
	s := &subset{prog: prog, seen: make([]bool, 2*len(prog.Inst)), builder: newBuilder[threadKey](e)}
	s.add(thread(2*prog.Start), true)
	s.builder.state(s.key())
	for at := 0; at < len(s.builder.keys); at++ {
		set, matched := decodeThreads(s.builder.keys[at])
		var list []runeEdge
		var accept bool
		if matched == matchedForGood {
			accept = true
			list = appendValid(nil, 0, utf8.MaxRune, int32(at))
		} else {
			accept = matched == matchedAtEnd
			list = s.edges(set)
		}
		if err := s.builder.set(list, accept); err != nil {
			return nil, err
		}
	}
	return s.builder.trimmed()
}

// The result of a set of threads for the text read so far.
const (
	matchedNot = iota
	matchedAtEnd
	matchedForGood
)

type subset struct {
	prog    *syntax.Prog
	builder *builder[threadKey]
	seen    []bool
	list    []thread // threads in seen whose instruction reads a character
	touched []thread // all threads in seen
	matched byte
}

// add adds a thread and all threads that it reaches without reading a character. first is true before the first
// character of the text.
func (s *subset) add(t thread, first bool) {
	s.builder.work.left--
	if s.seen[t] {
		return
	}
	s.seen[t] = true
	s.touched = append(s.touched, t)
	ended := t & 1
	in := &s.prog.Inst[t>>1]
	switch in.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		s.add(thread(in.Out)<<1|ended, first)
		s.add(thread(in.Arg)<<1|ended, first)
	case syntax.InstCapture, syntax.InstNop:
		s.add(thread(in.Out)<<1|ended, first)
	case syntax.InstEmptyWidth:
		op := syntax.EmptyOp(in.Arg)
		if op&syntax.EmptyBeginText != 0 && !first {
			return
		}
		if op&syntax.EmptyEndText != 0 {
			ended = 1
		}
		s.add(thread(in.Out)<<1|ended, first)
	case syntax.InstMatch:
		if ended == 0 {
			s.matched = matchedForGood
		} else {
			s.matched = max(s.matched, matchedAtEnd)
		}
	case syntax.InstFail:
	default:
		if ended == 0 {
			s.list = append(s.list, t)
		}
	}
}

// key returns the set collected by add as a key, and clears the set.
func (s *subset) key() threadKey {
	slices.Sort(s.list)
	buf := []byte{s.matched}
	if s.matched != matchedForGood {
		for _, t := range s.list {
			buf = append(buf, byte(t), byte(t>>8), byte(t>>16), byte(t>>24))
		}
	}
	for _, t := range s.touched {
		s.seen[t] = false
	}
	s.list, s.touched, s.matched = s.list[:0], s.touched[:0], matchedNot
	return threadKey(buf)
}

func decodeThreads(k threadKey) (list []thread, matched byte) {
	for i := 1; i < len(k); i += 4 {
		list = append(list, thread(k[i])|thread(k[i+1])<<8|thread(k[i+2])<<16|thread(k[i+3])<<24)
	}
	return list, k[0]
}

// edges divides the characters at every bound of the threads' character classes, and returns an edge for each interval.
func (s *subset) edges(set []thread) []runeEdge {
	classes := make([][]rune, len(set))
	cuts := []rune{0, utf8.MaxRune + 1}
	for i, t := range set {
		classes[i] = runeClass(&s.prog.Inst[t>>1])
		for j := 0; j < len(classes[i]); j += 2 {
			cuts = append(cuts, classes[i][j], classes[i][j+1]+1)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	var list []runeEdge
	for i := 0; i+1 < len(cuts); i++ {
		for j, t := range set {
			s.builder.work.left--
			if inClass(classes[j], cuts[i]) {
				s.add(thread(s.prog.Inst[t>>1].Out)<<1, false)
			}
		}
		s.add(thread(2*s.prog.Start), false)
		if s.builder.work.left < 0 {
			return nil // the builder returns the error
		}
		list = appendValid(list, cuts[i], cuts[i+1]-1, s.builder.state(s.key()))
	}
	return list
}

// runeClass returns the characters of an instruction as pairs lo, hi, sorted.
func runeClass(in *syntax.Inst) []rune {
	switch in.Op {
	case syntax.InstRuneAny:
		return []rune{0, utf8.MaxRune}
	case syntax.InstRuneAnyNotNL: // line terminators are excluded as in ECMA-262
		return []rune{0, '\n' - 1, '\n' + 1, '\r' - 1, '\r' + 1, 0x2027, 0x202a, utf8.MaxRune}
	}
	if len(in.Rune) == 1 {
		class := []rune{in.Rune[0], in.Rune[0]}
		if syntax.Flags(in.Arg)&syntax.FoldCase != 0 {
			// The parser stores the smallest of the upper-case and lower-case forms of a letter; SimpleFold returns the
			// others in ascending order.
			for r := unicode.SimpleFold(in.Rune[0]); r != in.Rune[0]; r = unicode.SimpleFold(r) {
				class = append(class, r, r)
			}
		}
		return class
	}
	return in.Rune
}

func inClass(class []rune, r rune) bool {
	lo, hi := 0, len(class)/2
	for lo < hi {
		mid := (lo + hi) / 2
		switch {
		case class[2*mid+1] < r:
			lo = mid + 1
		case class[2*mid] > r:
			hi = mid
		default:
			return true
		}
	}
	return false
}
