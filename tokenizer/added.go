package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"sparrow/internal/mark"
)

// addedToken is an entry of "added_tokens": a text that is one token wherever it occurs. It is matched before all other
// stages.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	Special    bool   `json:"special"`     // whether it is not part of the text, so that Decode can omit it
	SingleWord bool   `json:"single_word"` // matched only if no word character is next to it
	StripLeft  bool   `json:"lstrip"`      // whether it removes white space before it
	StripRight bool   `json:"rstrip"`      // whether it removes white space after it
	Normalized *bool  `json:"normalized"`  // searched for in normalised text; default: true unless special
}

func (a *addedToken) normalized() bool {
	if a.Normalized == nil {
		return !a.Special
	}
	return *a.Normalized
}

// blank reports whether the token is only white space, for tokenizers with tokens for runs of white space.
func (a *addedToken) blank() bool { return strings.TrimSpace(a.Content) == "" }

// addedIndex looks up the entries of "added_tokens" while the vocabulary is read.
type addedIndex struct {
	list      []addedToken
	byContent map[string]*addedToken
	byID      map[int32]*addedToken
	inVocab   map[int32]bool
}

// newAddedIndex checks that ids are in range and that each id has one content and each content one id.
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

// addedSet finds added tokens in text: at the leftmost position, and there the longest. It is a trie over bytes. A
// search costs at most the length of the longest token per position, and only if the first byte matches.
type addedSet struct {
	tokens []*addedToken
	nodes  []trieNode // nodes[0] is the root
	first  [256]bool  // bytes with which some token begins
}

type trieNode struct {
	token int32 // index in tokens; -1 if no token ends here
	edges []trieEdge
}

type trieEdge struct {
	b    byte
	node int32
}

// add registers content, the text to search for, as tok.
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

// longest returns the longest token at the start of s, and its length there. Only the first free bytes of s can be part
// of a token that is more than white space.
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

// find returns the next token in s at or after from that has no byte in literal, with the white space that it removes;
// tok is nil if there is none.
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
