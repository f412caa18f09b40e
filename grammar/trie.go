package grammar

import (
	"bytes"
	"slices"
)

// maxTokenBytes is the maximum length of a token, and therefore the depth of a trie.
const maxTokenBytes = 1 << 12

// trie holds the tokens by their bytes. Nodes are numbered in preorder, so a subtree is a range of numbers. Node 0 is
// the root, whose text is empty.
type trie struct {
	label  []byte   // [nodes] last byte of the node's text
	depth  []uint16 // [nodes] number of bytes of the node's text
	end    []int32  // [nodes] first node after the subtree
	first  []int32  // [nodes+1] the node's tokens are tokens[first[i]:first[i+1]]
	tokens []int32
	deep   int // largest depth
}

func newTrie(ids []int32, text func(int32) []byte) trie {
	slices.SortStableFunc(ids, func(a, b int32) int { return bytes.Compare(text(a), text(b)) })
	t := trie{tokens: ids}
	open := []int32{} // nodes from the root to the last added node
	add := func(label byte) {
		node := int32(len(t.label))
		t.label = append(t.label, label)
		t.depth = append(t.depth, uint16(len(open)))
		t.end = append(t.end, 0)
		t.first = append(t.first, 0)
		open = append(open, node)
		t.deep = max(t.deep, len(open)-1)
	}
	closeTo := func(depth int) {
		for len(open)-1 > depth {
			t.end[open[len(open)-1]] = int32(len(t.label))
			open = open[:len(open)-1]
		}
	}
	add(0)
	var last []byte
	for i, id := range ids {
		b := text(id)
		common := 0
		for common < len(b) && common < len(last) && b[common] == last[common] {
			common++
		}
		closeTo(common)
		for _, c := range b[common:] {
			add(c)
			t.first[len(t.first)-1] = int32(i)
		}
		last = b
	}
	closeTo(-1)
	t.first = append(t.first, int32(len(ids)))
	return t
}

// at returns the tokens whose text equals the text of the node.
func (t *trie) at(node int32) []int32 { return t.tokens[t.first[node]:t.first[node+1]] }

// isLeaf reports whether nothing is below the node.
func (t *trie) isLeaf(node int32) bool { return t.end[node] == node+1 }

// find returns the node of a text; ok is false if there is none.
func (t *trie) find(text []byte) (node int32, ok bool) {
	for _, b := range text {
		k, end := node+1, t.end[node]
		for ; k < end && t.label[k] != b; k = t.end[k] {
		}
		if k == end {
			return 0, false
		}
		node = k
	}
	return node, true
}
