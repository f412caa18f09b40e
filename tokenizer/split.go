package tokenizer

// behavior states what a split does with matches.
type behavior int

const (
	isolated       behavior = iota // matches and the text between them are pieces
	removed                        // matches are removed
	mergedPrevious                 // a match is joined to the piece before it
	mergedNext                     // a match is joined to the piece after it
	contiguous                     // as isolated, but adjacent matches are one piece
)

// behaviors maps names in tokenizer.json to behaviours.
var behaviors = map[string]behavior{
	"Isolated":           isolated,
	"Removed":            removed,
	"MergedWithPrevious": mergedPrevious,
	"MergedWithNext":     mergedNext,
	"Contiguous":         contiguous,
}

// splitStage splits at the matches of a pattern or, if inverted, at the text between them.
type splitStage struct {
	pattern  matcher
	behavior behavior
	invert   bool
}

// part is a span of the text. It states whether the span is a match.
type part struct {
	span
	match bool
}

func (st splitStage) cut(sc *scratch, s string, dst []span) ([]span, error) {
	found, err := st.pattern.matches(sc, s, sc.found[:0])
	sc.found = found[:0]
	if err != nil {
		return dst, err
	}
	parts := sc.parts[:0]
	add := func(start, end int32, match bool) {
		parts = append(parts, part{span{start, end}, match != st.invert})
	}
	at := int32(0)
	for _, m := range found {
		if at < m.start {
			add(at, m.start, false)
		}
		add(m.start, m.end, true)
		at = m.end
	}
	if int(at) < len(s) {
		add(at, int32(len(s)), false)
	}
	sc.parts = parts[:0]
	return st.behavior.join(parts, dst), nil
}

// join appends the pieces for a list of parts. Empty pieces are omitted.
func (b behavior) join(parts []part, dst []span) []span {
	first := len(dst)
	matched := false // whether the previous part was a match
	if b == mergedNext {
		// A match is joined to the text after it, unless that is also a match.
		for i, p := range parts {
			begins := i == 0 || !parts[i-1].match || p.match
			dst = extend(dst, first, p.span, !begins)
		}
		return dst
	}
	for _, p := range parts {
		switch b {
		case isolated:
			dst = extend(dst, first, p.span, false)
		case removed:
			if !p.match {
				dst = extend(dst, first, p.span, false)
			}
		case mergedPrevious:
			dst = extend(dst, first, p.span, p.match && !matched)
		case contiguous:
			dst = extend(dst, first, p.span, p.match == matched)
		}
		matched = p.match
	}
	return dst
}

// extend appends p to dst. If glued is true and the last span (at or after first) ends where p begins, that span is
// extended instead. Empty spans mark only a position.
func extend(dst []span, first int, p span, glued bool) []span {
	if glued && len(dst) > first && dst[len(dst)-1].end == p.start {
		dst[len(dst)-1].end = p.end
		return dst
	}
	return appendSpan(dst, int(p.start), int(p.end))
}
