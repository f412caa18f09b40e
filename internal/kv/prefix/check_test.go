package prefix

import (
	"errors"
	"strings"
	"testing"

	golden "sparrow/internal/testkit/table"
)

// TestCheckFindsEveryBrokenRule breaks one rule at a time and checks that Check reports it. The index has two roots,
// branches, duplicates, idle pages and evicted hashes.
func TestCheckFindsEveryBrokenRule(t *testing.T) {
	build := func(t *testing.T) *Index {
		ix := newIndex(t, Config{Pages: 16, PageTokens: 2})
		add(t, ix, "", "zz", 15)
		drop(ix, 15)
		ix.Evict()
		add(t, ix, "", "aabbcc", 1, 2, 3)
		add(t, ix, "", "aabbdd", 4, 5, 6) // pages 4 and 5 have the contents of 1 and 2
		add(t, ix, "acme", "xxyy", 7, 8)
		add(t, ix, "", "eeff", 9, 10)
		drop(ix, 9, 10)
		check(t, ix)
		return ix
	}
	of := func(ix *Index, p Page) int32 { return ix.pages[p].node }
	var lines []string // whole messages
	for _, c := range []struct {
		name string
		hurt func(ix *Index)
		want string
	}{
		{"unused nodes run in a circle", func(ix *Index) { ix.nodes[ix.unused].next = ix.unused },
			"twice in the list of unused"},
		{"a used node is in the list of unused nodes", func(ix *Index) { ix.unused = of(ix, 3) }, "unused"},
		{"a node is missing from the hash table", func(ix *Index) { ix.byHash.remove(of(ix, 3)) },
			"the hash table has"},
		{"an unused node is in the hash table", func(ix *Index) { ix.byHash.add(ix.unused, &Hash{1}) }, "is unused"},
		{"a bucket runs in a circle", func(ix *Index) { ix.byHash.next[of(ix, 3)] = of(ix, 3) }, "twice"},
		{"a hash changed", func(ix *Index) { ix.byHash.keys[of(ix, 3)][0] ^= 1 }, "hash"},
		{"two entries have one hash", func(ix *Index) {
			ix.byHash.remove(of(ix, 3))
			ix.byHash.add(of(ix, 3), &ix.byHash.keys[of(ix, 6)])
		}, "not found by its hash"},
		{"tokens changed", func(ix *Index) { ix.tokensOf(3)[1]++ }, "hash of the tokens"},
		{"a root has a parent", func(ix *Index) { ix.nodes[ix.nodes[of(ix, 1)].parent].parent = of(ix, 7) }, "root"},
		{"a root has no child", func(ix *Index) { ix.nodes[ix.nodes[of(ix, 7)].parent].child = none }, "root"},
		{"an entry has a page that does not exist", func(ix *Index) { ix.nodes[of(ix, 3)].page = 99 }, "page 99"},
		{"an entry has the page of another", func(ix *Index) { ix.nodes[of(ix, 3)].page = 6 }, "refers to page 6"},
		{"a page forgot its entry", func(ix *Index) { ix.pages[3].node = none }, "belongs to entry -1"},
		{"an entry lost its parent", func(ix *Index) { ix.nodes[of(ix, 3)].parent = none }, "which does not exist"},
		{"an entry hangs under another parent", func(ix *Index) { ix.nodes[of(ix, 3)].parent = of(ix, 7) },
			"hash of the tokens"},
		{"a child is not listed", func(ix *Index) {
			ix.nodes[of(ix, 2)].child = ix.nodes[of(ix, 6)].next
			ix.nodes[of(ix, 3)].prev = none
		}, "child lists hold"},
		{"a sibling link is wrong", func(ix *Index) { ix.nodes[of(ix, 3)].prev = none }, "in the child list of node"},
		{"children run in a circle", func(ix *Index) { ix.nodes[of(ix, 3)].next = of(ix, 6) },
			"in the child list of node"},
		{"a duplicate is not listed", func(ix *Index) { ix.pages[1].next = None }, "the lists of entries hold"},
		{"a duplicate is linked back wrongly", func(ix *Index) { ix.pages[4].prev = 5 }, "in the list of entry"},
		{"a duplicate differs", func(ix *Index) { ix.tokensOf(4)[0]++ }, "have different tokens"},
		{"an idle entry has a duplicate", func(ix *Index) { ix.idle.add(ix.nodes, of(ix, 1)) },
			"although page 4 has its content"},
		{"an idle entry has a child in use", func(ix *Index) { ix.idle.add(ix.nodes, of(ix, 7)) }, "before its child"},
		{"a parent is older than its child", func(ix *Index) {
			ix.idle.remove(ix.nodes, of(ix, 10))
			ix.idle.add(ix.nodes, of(ix, 10))
		}, "before its child"},
		{"an idle entry is not marked", func(ix *Index) { ix.nodes[of(ix, 10)].idle = false },
			"in the idle list"},
		{"an entry is marked idle but not listed", func(ix *Index) { ix.nodes[of(ix, 3)].idle = true }, "marked idle"},
		{"the idle list is linked back wrongly", func(ix *Index) { ix.nodes[of(ix, 9)].older = none },
			"in the idle list"},
		{"the idle list runs in a circle", func(ix *Index) { ix.nodes[of(ix, 9)].newer = of(ix, 10) },
			"in the idle list"},
		{"the idle list ends elsewhere", func(ix *Index) { ix.idle.newest = of(ix, 10) }, "ends at node"},
		{"idle entries are miscounted", func(ix *Index) { ix.idle.count++ }, "idle list of 3"},
		{"evicted hashes are miscounted", func(ix *Index) { ix.ghosts.count++ }, "evicted hashes"},
		{"an evicted hash changed", func(ix *Index) {
			// The key is changed until it belongs in another bucket.
			for ok := true; ok; ok = ix.ghosts.find(&ix.ghosts.keys[0]) != none {
				ix.ghosts.keys[0][0]++
			}
		}, "not found by its hash"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ix := build(t)
			c.hurt(ix)
			if err := ix.Check(); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			} else {
				lines = append(lines, c.name+": "+err.Error())
			}
		})
	}
	golden.Check(t, "damages.txt", lines)
}
