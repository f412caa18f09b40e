package grammar

// punct is one punctuation character with optional whitespace before or after it.
//
// Whitespace is limited, because a model could otherwise generate it forever. It is nothing, one space, or a newline
// followed by at most [MaxIndent] spaces or half as many tabs.
type punct struct {
	family uint32
	mark   byte
	before bool // whitespace allowed before
	after  bool // whitespace allowed after
}

// The punctuation of JSON, in the order of punctuation below.
const (
	openObject = iota
	openArray
	comma
	closeObject // directly after openObject, whose leaf includes the whitespace
	closeArray
	closeObjectSpaced // after a value
	closeArraySpaced
	punctuationKinds
)

func punctuation() [punctuationKinds]punct {
	return [punctuationKinds]punct{
		openObject:        {family: familyPunct + openObject, mark: '{', after: true},
		openArray:         {family: familyPunct + openArray, mark: '[', after: true},
		comma:             {family: familyPunct + comma, mark: ',', after: true},
		closeObject:       {family: familyPunct + closeObject, mark: '}'},
		closeArray:        {family: familyPunct + closeArray, mark: ']'},
		closeObjectSpaced: {family: familyPunct + closeObjectSpaced, mark: '}', before: true},
		closeArraySpaced:  {family: familyPunct + closeArraySpaced, mark: ']', before: true},
	}
}

// A state has a phase in the low byte, the kind of whitespace in the next byte, and the length of the indentation
// above.
const (
	punctBefore = iota // before the punctuation character
	punctAfter         // after the punctuation character
)

const (
	spaceNone = iota
	spaceSingle
	spaceLine // newline, no indentation yet
	spaceSpaces
	spaceTabs
)

func packPunct(phase, form, count uint64) uint64 { return phase | form<<8 | count<<16 }

func (p *punct) start() uint64 { return packPunct(punctBefore, spaceNone, 0) }

func (p *punct) step(q uint64, b byte) (uint64, bool) {
	phase, form, count := q&0xff, q>>8&0xff, q>>16
	if phase == punctBefore && b == p.mark {
		return packPunct(punctAfter, spaceNone, 0), true
	}
	if phase == punctBefore && !p.before || phase == punctAfter && !p.after {
		return 0, false
	}
	switch {
	case form == spaceNone && b == ' ':
		return packPunct(phase, spaceSingle, 0), true
	case form == spaceNone && b == '\n':
		return packPunct(phase, spaceLine, 0), true
	case (form == spaceLine || form == spaceSpaces) && b == ' ' && count < MaxIndent:
		return packPunct(phase, spaceSpaces, count+1), true
	case (form == spaceLine || form == spaceTabs) && b == '\t' && count < MaxIndent/2:
		return packPunct(phase, spaceTabs, count+1), true
	}
	return 0, false
}

func (p *punct) accepts(q uint64) bool { return q&0xff == punctAfter }

func (p *punct) open(q uint64) bool {
	if q&0xff == punctBefore {
		return true
	}
	form, count := q>>8&0xff, q>>16
	switch form {
	case spaceSingle:
		return false
	case spaceSpaces:
		return count < MaxIndent
	case spaceTabs:
		return count < MaxIndent/2
	}
	return p.after
}

func (p *punct) class(q uint64, _ int) maskKey { return maskKey{p.family, q} }
