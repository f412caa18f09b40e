package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"sparrow/internal/mark"
)

// addedToken is an entry of "added_tokens": a text that always is one token. It is matched before all other stages.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	Special    bool   `json:"special"`     // whether Decode can omit it
	SingleWord bool   `json:"single_word"` // whether it is matched only without word characters next to it
	StripLeft  bool   `json:"lstrip"`      // whether white space before it is removed
	StripRight bool   `json:"rstrip"`      // whether white space after it is removed
	Normalized *bool  `json:"normalized"`  // whether it is searched for after normalisation; the default is !Special
}

func (a *addedToken) normalized() bool {
	if a.Normalized == nil {
		return !a.Special
	}
	return *a.Normalized
}

// blank reports whether the token consists of white space. Some tokenizers have tokens for runs of white space.
func (a *addedToken) blank() bool { return strings.TrimSpace(a.Content) == "" }

// addedIndex finds the entries of "added_tokens" by content and id, while the vocabulary is read.
type addedIndex struct {
	list      []addedToken
	byContent map[string]*addedToken
	byID      map[int32]*addedToken
	inVocab   map[int32]bool
}

// newAddedIndex checks that ids are in range, and that ids and contents are unique.
func newAddedIndex(list []addedToken) (*addedIndex, error) {
	x := &addedIndex{list, map[string]*addedToken{}, map[int32]*addedToken{}, map[int32]bool{}}
	for i := range list {
		a := &list[i]
		if a.ID < 0 || a.ID > maxID {
			return nil, malformed("added token %q has id %d; ids are 0 to %d", a.Content, a.ID, maxID)
		}
		if other := x.byID[a.ID]; other != nil && other.Content != a.Content {
			return nil, malformed("id %d is used by two added tokens, %q and %q", a.ID, other.Content, a.Content)
		}
		if other := x.byContent[a.Content]; other != nil && other.ID != a.ID {
			return nil, malformed("added token %q has two ids, %d and %d", a.Content, other.ID, a.ID)
		}
		x.byID[a.ID], x.byContent[a.Content] = a, a
	}
	return x, nil
}

// missing returns the added tokens that are not in the vocabulary.
func (x *addedIndex) missing() []*addedToken {
	var list []*addedToken
	for id, a := range x.byID {
		if !x.inVocab[id] {
			list = append(list, a)
		}
	}
	return list
}

// addedSet finds added tokens in text: the leftmost one, and of several there the longest. It is a trie over bytes.
// Positions whose byte begins no token are skipped.
type addedSet struct {
	tokens []*addedToken
	nodes  []trieNode // nodes[0] is the root
	first  [256]bool  // [byte] whether a token begins with it
}

type trieNode struct {
	token int32 // index in tokens of the token that ends here, or -1
	edges []trieEdge
}

type trieEdge struct {
	b    byte
	node int32
}

// add adds a token with the text to search for.
func (a *addedSet) add(content string, tok *addedToken) {
	if content == "" {
		return
	}
	if len(a.nodes) == 0 {
		a.nodes = []trieNode{{token: -1}}
	}
	a.first[content[0]] = true
	at := int32(0)
	for i := range len(content) {
		next := a.step(at, content[i])
		if next < 0 {
			next = int32(len(a.nodes))
			a.nodes = append(a.nodes, trieNode{token: -1})
			a.nodes[at].edges = append(a.nodes[at].edges, trieEdge{content[i], next})
		}
		at = next
	}
	a.nodes[at].token = int32(len(a.tokens))
	a.tokens = append(a.tokens, tok)
}

func (a *addedSet) step(node int32, b byte) int32 {
	for _, e := range a.nodes[node].edges {
		if e.b == b {
			return e.node
		}
	}
	return -1
}

// longest returns the longest token at the start of s, and its length. Tokens that are not white space must be within
// the first free bytes of s.
func (a *addedSet) longest(s string, free int) (tok *addedToken, n int) {
	at := int32(0)
	for i := range len(s) {
		if at = a.step(at, s[i]); at < 0 {
			break
		}
		if t := a.nodes[at].token; t >= 0 && (i < free || a.tokens[t].blank()) {
			tok, n = a.tokens[t], i+1
		}
	}
	return tok, n
}

// find returns the first token in s at or after from without a byte in literal, and its span, including the white space
// that it removes. tok is nil if there is none.
func (a *addedSet) find(s string, from int, literal []mark.Span) (start, end int, tok *addedToken) {
	if len(a.tokens) == 0 {
		return 0, 0, nil
	}
	for i := from; i < len(s); i++ {
		if !a.first[s[i]] {
			continue
		}
		for len(literal) > 0 && literal[0].End <= i {
			literal = literal[1:]
		}
		free := len(s)
		if len(literal) > 0 {
			free = literal[0].Start
		}
		tok, n := a.longest(s[i:], free-i)
		if tok == nil {
			continue
		}
		start, end = i, i+n
		if tok.SingleWord && (wordBefore(s[:start]) || wordAfter(s[end:])) {
			i = end - 1
			continue
		}
		if tok.StripLeft {
			start = from + len(strings.TrimRightFunc(s[from:start], unicode.IsSpace))
		}
		if tok.StripRight {
			end = len(s) - len(strings.TrimLeftFunc(s[end:], unicode.IsSpace))
		}
		return start, end, tok
	}
	return 0, 0, nil
}

func wordBefore(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && isWord(r)
}

func wordAfter(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && isWord(r)
}

// isWord reports whether r matches \w: letters, marks, digits, connectors and joiners.
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc,
		unicode.Other_Alphabetic, unicode.Join_Control)
}
