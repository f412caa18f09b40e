package grammar

// leaf is an automaton over bytes for a part of a document without nesting: a string, a number, a bracket. A state is a
// uint64.
//
// Every state returned by step can reach an accepting state. No leaf accepts the empty text.
type leaf interface {
	// start returns the state before the first byte.
	start() uint64
	// step returns the state after one more byte; ok is false if the byte is not allowed.
	step(q uint64, b byte) (next uint64, ok bool)
	// accepts reports whether q is an accepting state.
	accepts(q uint64) bool
	// open reports whether any byte is allowed after this state.
	open(q uint64) bool
	// class returns a key for the tokens allowed at q; longest is the length of the longest token. In family 0 the key
	// is q itself.
	class(q uint64, longest int) maskKey
}

// tagged is a leaf whose accepting states have different outcomes, such as which property name was read.
type tagged interface {
	// tag returns the outcome of an accepting state.
	tag(q uint64) int32
}

// Families of leaf states whose masks are the same in every grammar.
const (
	familyNone = iota // the mask belongs to one leaf
	familyString
	familyFreeKey
	familyNumber
	familyPunct // first number for families of punctuation; each such leaf has its own family
	ownFamilies = 64

	patternFamilies = 1 << 31 // the first of the families of patterns, one per pattern; see Tokens.family
)

func tagOf(l leaf, q uint64) int32 {
	if t, ok := l.(tagged); ok {
		return t.tag(q)
	}
	return 0
}
