package prefix

import (
	"fmt"
	"slices"
)

// Check examines the whole index and returns the first violated invariant, wrapped in ErrCorrupt. Its time is
// proportional to the size of the index. It is for tests and diagnosis.
func (ix *Index) Check() error {
	c := checker{Index: ix, live: make([]bool, len(ix.nodes)), rank: make([]int, len(ix.nodes))}
	for _, walk := range []func() error{c.unusedNodes, c.hashes, c.entries, c.children, c.twins, c.idleList, c.memory} {
		if err := walk(); err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
	return nil
}

// checker holds the buffers of a call of Check. Later checks rely on the results of earlier ones.
type checker struct {
	*Index
	live []bool // [nodes] whether the node is in use
	rank []int  // [nodes] position in the idle list, from 1; 0 for entries in use
}

func (c *checker) node(n int32) bool { return n >= 0 && int(n) < len(c.nodes) && c.live[n] }

// unusedNodes checks that the list of unused nodes contains no node twice.
func (c *checker) unusedNodes() error {
	for i := range c.live {
		c.live[i] = true
	}
	for n := c.unused; n != none; n = c.nodes[n].next {
		if !c.node(n) {
			return fmt.Errorf("node %d is twice in the list of unused nodes or does not exist", n)
		}
		c.live[n] = false
	}
	return nil
}

// hashes checks that the table contains exactly the live nodes, each once and in the bucket of its hash.
func (c *checker) hashes() error {
	found := make([]bool, len(c.nodes))
	count, err := c.byHash.check(func(n int32) error {
		if !c.node(n) || found[n] {
			return fmt.Errorf("node %d is in the hash table twice or is unused", n)
		}
		found[n] = true
		return nil
	})
	if err != nil {
		return err
	}
	if want := c.count(func(int32) bool { return true }); count != want {
		return fmt.Errorf("the hash table has %d nodes, the tree has %d", count, want)
	}
	return nil
}

// entries checks that a root has a child and no page, and that an entry has a page, a live parent and a correct hash.
func (c *checker) entries() error {
	for i := range c.nodes {
		n, e := int32(i), &c.nodes[i]
		switch {
		case !c.live[n]:
		case e.page == None:
			if e.parent != none || e.child == none || e.idle {
				return fmt.Errorf("root %d has parent %d and child %d; want no parent, a child and not idle", n,
					e.parent, e.child)
			}
		case e.page < 0 || int(e.page) >= len(c.pages):
			return fmt.Errorf("entry %d has page %d, which is outside the %d pages", n, e.page, len(c.pages))
		case c.pages[e.page].node != n || c.pages[e.page].prev != None:
			return fmt.Errorf("entry %d refers to page %d, which belongs to entry %d and follows page %d", n, e.page,
				c.pages[e.page].node, c.pages[e.page].prev)
		case !c.node(e.parent):
			return fmt.Errorf("entry %d of page %d has parent %d, which does not exist", n, e.page, e.parent)
		case c.hash.page(c.byHash.keys[e.parent], c.tokensOf(e.page)) != c.byHash.keys[n]:
			return fmt.Errorf("the hash of entry %d differs from the hash of the tokens of its page %d", n, e.page)
		}
	}
	return nil
}

// children checks that every node with a parent is exactly once in the list of its parent's children.
func (c *checker) children() error {
	visited := 0
	for i := range c.nodes {
		if !c.live[i] {
			continue
		}
		prev := none
		for n := c.nodes[i].child; n != none; n = c.nodes[n].next {
			if !c.node(n) || c.nodes[n].parent != int32(i) || c.nodes[n].prev != prev {
				return fmt.Errorf("node %d is in the child list of node %d, but its parent or its list links disagree",
					n, i)
			}
			prev = n
			visited++
		}
	}
	if want := c.count(func(n int32) bool { return c.nodes[n].parent != none }); visited != want {
		return fmt.Errorf("child lists hold %d nodes, %d nodes have a parent", visited, want)
	}
	return nil
}

// twins checks that the pages of an entry have the same tokens, and that every stored page is in the list of its entry.
func (c *checker) twins() error {
	visited := 0
	for i := range c.nodes {
		if !c.live[i] {
			continue
		}
		e, prev := &c.nodes[i], None
		for p := e.page; p != None; p = c.pages[p].next {
			if p < 0 || int(p) >= len(c.pages) || c.pages[p].node != int32(i) || c.pages[p].prev != prev {
				return fmt.Errorf("page %d is in the list of entry %d, but its entry or its list links disagree", p, i)
			}
			if !slices.Equal(c.tokensOf(p), c.tokensOf(e.page)) {
				return fmt.Errorf("pages %d and %d of entry %d have different tokens", p, e.page, i)
			}
			prev = p
			visited++
		}
	}
	stored := 0
	for p := range c.pages {
		if c.pages[p].node != none {
			stored++
		}
	}
	if visited != stored {
		return fmt.Errorf("the lists of entries hold %d pages, %d pages have an entry", visited, stored)
	}
	return nil
}

// idleList checks that the list contains exactly the idle entries, each with a single page, and children before
// parents.
func (c *checker) idleList() error {
	count, older := 0, none
	for n := c.idle.oldest; n != none; n = c.nodes[n].newer {
		if !c.node(n) || !c.nodes[n].idle || c.nodes[n].older != older || c.rank[n] != 0 {
			return fmt.Errorf("node %d is in the idle list, but its flag or its list links disagree", n)
		}
		e := &c.nodes[n]
		if c.pages[e.page].next != None {
			return fmt.Errorf("entry %d is idle although page %d has its content", n, c.pages[e.page].next)
		}
		for k := e.child; k != none; k = c.nodes[k].next {
			if c.rank[k] == 0 {
				return fmt.Errorf("entry %d would be evicted before its child %d", n, k)
			}
		}
		count++
		c.rank[n] = count
		older = n
	}
	flagged := c.count(func(n int32) bool { return c.nodes[n].idle })
	if c.idle.newest != older || c.idle.count != count || flagged != count {
		return fmt.Errorf("idle list of %d entries ends at node %d; want %d entries, end %d, %d marked idle",
			c.idle.count, c.idle.newest, count, older, flagged)
	}
	return nil
}

// memory checks the table of the hashes of evicted pages.
func (c *checker) memory() error {
	g := &c.ghosts
	found := make([]bool, len(g.keys))
	count, err := g.check(func(s int32) error {
		if s < 0 || int(s) >= len(found) || found[s] {
			return fmt.Errorf("evicted hash %d is stored twice or outside the table", s)
		}
		found[s] = true
		return nil
	})
	if err == nil && count != g.count {
		err = fmt.Errorf("the counter of evicted hashes is %d, the table holds %d", g.count, count)
	}
	return err
}

// count returns the number of live nodes of a kind.
func (c *checker) count(is func(int32) bool) int {
	count := 0
	for i := range c.nodes {
		if c.live[i] && is(int32(i)) {
			count++
		}
	}
	return count
}

// check calls visit for every slot of a table, and checks that find returns the slot for its hash. visit must return an
// error if a slot is visited twice, which ends the check if a bucket is circular.
func (t *table) check(visit func(int32) error) (count int, err error) {
	seen := map[Hash]bool{}
	for b := range t.heads {
		for s := t.heads[b]; s != none; s = t.next[s] {
			if err := visit(s); err != nil {
				return count, err
			}
			if h := t.keys[s]; seen[h] || t.bucket(&h) != &t.heads[b] {
				return count, fmt.Errorf("slot %d is not found by its hash %v", s, h)
			}
			seen[t.keys[s]] = true
			count++
		}
	}
	return count, nil
}
