package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// stage is a step of pre-tokenization: it appends to dst the pieces of s, in order and not empty.
type stage interface {
	cut(sc *scratch, s string, dst []span) ([]span, error)
}

// pipeline is the pre-tokenizer: each stage divides the pieces of the previous stage, one by one.
type pipeline struct {
	stages    []stage
	byteLevel bool // whether the pieces are then converted to bytes
	// prefixAt is the stage before which pieces without a leading space get one, or -1.
	prefixAt int
}

// scratch holds buffers that calls of Encode reuse.
type scratch struct {
	spans [][]span // [stages] pieces of the stage's current input
	found []span
	parts []part
	runes []rune
	merge mergeBuffers
}

// keepElements is the maximum number of elements of a buffer that is kept for later calls.
const keepElements = 1 << 16

// trim releases large buffers.
func (sc *scratch) trim() {
	for k := range sc.spans {
		sc.spans[k] = keep(sc.spans[k])
	}
	sc.found, sc.parts, sc.runes = keep(sc.found), keep(sc.parts), keep(sc.runes)
	m := &sc.merge
	m.ids, m.rank, m.prev, m.next = keep(m.ids), keep(m.rank), keep(m.prev), keep(m.next)
	m.heap = keep(m.heap)
}

func keep[T any](s []T) []T {
	if cap(s) > keepElements {
		return nil
	}
	return s
}

// each calls emit with every piece of s.
func (p *pipeline) each(sc *scratch, s string, emit func(piece string) error) error {
	for len(sc.spans) < len(p.stages) {
		sc.spans = append(sc.spans, nil)
	}
	return p.from(0, sc, s, emit)
}

// from runs stage k and later ones.
func (p *pipeline) from(k int, sc *scratch, s string, emit func(piece string) error) error {
	if k == p.prefixAt && !strings.HasPrefix(s, " ") {
		s = " " + s
	}
	if k == len(p.stages) {
		return emit(s)
	}
	spans, err := p.stages[k].cut(sc, s, sc.spans[k][:0])
	if err != nil {
		return err
	}
	sc.spans[k] = spans
	for _, piece := range spans {
		if err := p.from(k+1, sc, piece.of(s), emit); err != nil {
			return err
		}
	}
	return nil
}

// newPipeline reads the pre-tokenizer of tokenizer.json; nil means that there is none.
func newPipeline(value json.RawMessage) (*pipeline, error) {
	p := &pipeline{prefixAt: -1}
	return p, eachComponent("pre_tokenizer", "pretokenizers", value, p.add)
}

// add appends the stages of one component.
func (p *pipeline) add(kind string, value json.RawMessage) error {
	if p.byteLevel {
		return fmt.Errorf("%w: pre-tokenizer %s after ByteLevel; supported: ByteLevel last", ErrUnsupported, kind)
	}
	switch kind {
	case "Split":
		st, err := newSplit(value)
		if err == nil {
			p.stages = append(p.stages, st)
		}
		return err
	case "Digits":
		var c struct {
			Individual bool `json:"individual_digits"`
		}
		if err := decodeJSON("pre_tokenizer Digits", value, &c); err != nil {
			return err
		}
		st := ruleStage{numbersRule}
		if c.Individual {
			st = ruleStage{numberRule}
		}
		p.stages = append(p.stages, st)
		return nil
	case "ByteLevel":
		c := struct {
			Prefix bool `json:"add_prefix_space"`
			Regex  bool `json:"use_regex"`
		}{Prefix: true, Regex: true}
		if err := decodeJSON("pre_tokenizer ByteLevel", value, &c); err != nil {
			return err
		}
		p.byteLevel = true
		if c.Prefix {
			p.prefixAt = len(p.stages)
		}
		if c.Regex {
			p.stages = append(p.stages, knownPatterns[patternGPT2])
		}
		return nil
	}
	return unsupported("pre_tokenizer", kind, "Sequence", "Split", "Digits", "ByteLevel")
}

// newSplit reads a component Split. For known patterns it uses a scanner instead of the pattern engine.
func newSplit(value json.RawMessage) (stage, error) {
	var c struct {
		Pattern  patternFile
		Behavior string
		Invert   bool
	}
	if err := decodeJSON("pre_tokenizer Split", value, &c); err != nil {
		return nil, err
	}
	b, ok := behaviors[c.Behavior]
	if !ok {
		return nil, unsupported("Split behavior", c.Behavior,
			"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous")
	}
	if c.Pattern.Regex != nil && b == isolated {
		if st, ok := knownPatterns[canonicalPattern(*c.Pattern.Regex)]; ok {
			return st, nil
		}
	}
	m, err := newMatcher(c.Pattern)
	if err != nil {
		return nil, err
	}
	return splitStage{pattern: m, behavior: b, invert: c.Invert}, nil
}
