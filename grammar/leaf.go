package grammar

// leaf is an automaton over bytes for a part of a document without nesting: a string, a number, a bracket. Its states
// are plain numbers.
//
// Every state returned by step can still reach an accepting one: a leaf never leads into a dead end. No leaf accepts
// the empty text.
type leaf interface {
	// start returns the state before the first byte.
	start() uint64
	// step returns the state after one more byte; ok is false if the byte is not allowed.
	step(q uint64, b byte) (next uint64, ok bool)
	// accepts reports whether the text may end here.
	accepts(q uint64) bool
	// open reports whether the text may continue after this state.
	open(q uint64) bool
	// class returns a key for the tokens allowed at q; longest is the length of the longest token. Family 0 means "q
	// itself".
	class(q uint64, longest int) maskKey
}

// tagged is a leaf with several outcomes.
type tagged interface {
	// tag returns the outcome at an accepting state.
	tag(q uint64) int32
}

// Families of leaves that allow the same tokens in every grammar.
const (
	familyNone = iota // class is the leaf's own state
	familyString
	familyFreeKey
	familyNumber
	familyPunct // and one family per punctuation leaf from here on
	ownFamilies = 64

	patternFamilies = 1 << 31 // and one family per pattern from here on, see Tokens.family
)

func tagOf(l leaf, q uint64) int32 {
	if t, ok := l.(tagged); ok {
		return t.tag(q)
	}
	return 0
}
