package grammar

import "unicode/utf8"

// Pattern returns the grammar of texts, not JSON, that a regular expression matches as a whole. The empty text is
// excluded. Errors are of type [*SchemaError].
func Pattern(pattern string, t *Tokens) (*Grammar, error) {
	work := &effort{left: maxEffort}
	d, err := compilePattern("^(?:"+pattern+")$", work)
	if err == nil {
		d, err = d.except(listedStrings([]string{""}), work)
	}
	if err != nil {
		return nil, patternError("", "pattern", pattern, err)
	}
	if d == nil {
		return nil, &SchemaError{Keyword: "pattern", Problem: "no text matches", Kind: ErrUnsatisfiable}
	}
	return oneLeaf(&textLeaf{patternLeaf{dfa: d, family: t.family("text " + pattern)}}, t), nil
}

// Choice returns the grammar that accepts each text of a list, not as JSON. Errors are of type [*SchemaError].
func Choice(list []string, t *Tokens) (*Grammar, error) {
	var texts []literal
	for _, text := range list {
		if text == "" || !utf8.ValidString(text) {
			return nil, &SchemaError{Keyword: "enum", Problem: "a choice must be non-empty text in valid UTF-8",
				Kind: ErrSchema}
		}
		texts = append(texts, literal{text: []byte(text)})
	}
	switch {
	case len(texts) == 0:
		return nil, &SchemaError{Keyword: "enum", Problem: "there must be at least one choice", Kind: ErrSchema}
	case len(texts) > MaxEnumValues:
		return nil, &SchemaError{Keyword: "enum", Problem: "too many choices", Kind: ErrTooLarge}
	}
	return oneLeaf(newLiterals(texts), t), nil
}

func oneLeaf(l leaf, t *Tokens) *Grammar {
	g := newGrammar(t)
	g.nodes = []node{{kind: leafNode, leaf: g.addLeaf(l)}}
	measure(g.nodes)
	g.arena = newArena(g)
	return g
}

// textLeaf accepts a text that matches an automaton, without quotes and escapes.
type textLeaf struct {
	pattern patternLeaf // the automaton
}

func (l *textLeaf) start() uint64 { return packPattern(strBody, 0, 0) }

func (l *textLeaf) step(q uint64, b byte) (uint64, bool) {
	if q&0xff == strBody && b < utf8.RuneSelf {
		return l.pattern.finish(int32(q>>8&0xffffff), 0, rune(b))
	}
	return l.pattern.step(q, b)
}

func (l *textLeaf) accepts(q uint64) bool {
	return q&0xff == strBody && l.pattern.dfa.accept[q>>8&0xffffff]
}

func (l *textLeaf) open(q uint64) bool {
	return q&0xff != strBody || len(l.pattern.dfa.edges[q>>8&0xffffff]) > 0
}

func (l *textLeaf) class(q uint64, longest int) maskKey { return l.pattern.class(q, longest) }
