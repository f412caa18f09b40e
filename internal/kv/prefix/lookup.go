package prefix

import "slices"

// maxSiblings is the maximum number of stored pages that a lookup compares with the prompt to find the first different
// token.
const maxSiblings = 64

// Lookup appends the stored pages of the longest prefix of a prompt to pages. The last compute tokens are never
// matched, even if they are stored. The index does not change: the caller marks the pages as used with Hold.
func (ix *Index) Lookup(root Hash, prompt []int32, compute int, pages []int32) ([]int32, Match) {
	size := ix.cfg.PageTokens
	limit := max(len(prompt)-max(compute, 0), 0) / size
	m := Match{Prompt: len(prompt), Stop: StopWhole}
	if limit < len(prompt)/size {
		m.Stop = StopCompute
	}
	up := ix.byHash.find(&root)
	if up != none && ix.nodes[up].page != None {
		limit, m.Stop = 0, StopCollision
	}
	for m.Pages < limit {
		tokens := prompt[m.Tokens : m.Tokens+size]
		n := ix.newest(up, tokens)
		if n == none {
			before := root
			if up != none {
				before = ix.byHash.keys[up]
			}
			h := ix.hash.page(before, tokens)
			n = ix.byHash.find(&h)
			if n == none || !ix.same(n, up, tokens) {
				m.Stop, m.At = ix.why(n, up, &h, tokens)
				break
			}
		}
		pages = append(pages, int32(ix.nodes[n].page))
		up = n
		m.Pages++
		m.Tokens += size
	}
	m.At += m.Tokens
	return pages, m
}

// newest returns the newest child of node up if it has these tokens, otherwise none. If a node has only one child, a
// match therefore computes no hash.
func (ix *Index) newest(up int32, tokens []int32) int32 {
	if up != none {
		if c := ix.nodes[up].child; c != none && ix.same(c, up, tokens) {
			return c
		}
	}
	return none
}

// why returns the reason why a page of tokens after node up did not match, and the number of its first tokens that did.
// n is the entry with its hash h, or none.
func (ix *Index) why(n, up int32, h *Hash, tokens []int32) (Stop, int) {
	if n != none {
		return StopCollision, 0
	}
	if ix.ghosts.find(h) != none {
		return StopEvicted, 0
	}
	if up == none || ix.nodes[up].child == none {
		return StopUnknown, 0
	}
	longest := 0
	c := ix.nodes[up].child
	for range maxSiblings {
		if c == none {
			break
		}
		longest = max(longest, common(ix.tokensOf(ix.nodes[c].page), tokens))
		c = ix.nodes[c].next
	}
	return StopDifferent, longest
}

// common returns the length of the common prefix of two pages of tokens.
func common(a, b []int32) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// equal reports whether two pages have the same tokens. Arrays of fixed size are compared with memequal, several times
// faster than a loop over elements.
func equal(a, b []int32) bool {
	const chunk = 16
	for len(a) >= chunk && len(b) >= chunk {
		if [chunk]int32(a) != [chunk]int32(b) {
			return false
		}
		a, b = a[chunk:], b[chunk:]
	}
	return slices.Equal(a, b)
}
