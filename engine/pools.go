package engine

import (
	"sparrow/internal/kv"
	"sparrow/internal/kv/prefix"
	"sparrow/plan"
)

// A model whose ranks share attention by requests has a pool of pages for each of them: rank r's pages, and window
// pages, are numbered after those of the ranks before it, so that a number names one page of the whole model. Other
// models have one pool.

// poolsOf returns how many pools of pages a configuration has.
func poolsOf(cfg *plan.Config) int {
	if cfg.Model.ByRequests() {
		return cfg.Model.Ranks
	}
	return 1
}

// openPools makes n pools of the given number of pages each.
func openPools(c kv.Config, n int) ([]*kv.Pool, error) {
	each, windows := c.Pages, c.Window.Pages
	if c.Listener != nil && n > 1 {
		c.Listener = &onceStored{Listener: c.Listener, of: n, pools: map[prefix.Hash]int{}}
	}
	var list []*kv.Pool
	for i := range n {
		c.FirstPage, c.Pages, c.Window.First = i*each, (i+1)*each, i*windows
		p, err := kv.New(c)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// onceStored reports pages that several pools may have to a listener once: as stored with the first pool that has them,
// as removed with the last.
type onceStored struct {
	prefix.Listener
	of      int                 // pools
	pools   map[prefix.Hash]int // that hold a page
	root    bool                // the root is told
	cleared int                 // times that a pool was cleared
}

// Root forwards the root of prompts without a salt, which all pools share.
func (o *onceStored) Root(h prefix.Hash) {
	if l, ok := o.Listener.(interface{ Root(prefix.Hash) }); ok && !o.root {
		l.Root(h)
	}
	o.root = true
}

// Stored passes on a page that no other pool holds.
func (o *onceStored) Stored(s prefix.Stored) {
	if o.pools[s.Hash]++; o.pools[s.Hash] == 1 {
		o.Listener.Stored(s)
	}
}

// Removed passes on a page that no other pool holds any more.
func (o *onceStored) Removed(h prefix.Hash) {
	if o.pools[h]--; o.pools[h] <= 0 {
		delete(o.pools, h)
		o.Listener.Removed(h)
	}
}

// Cleared passes on that the first pool was cleared: the engine clears all of them, one after the other.
func (o *onceStored) Cleared() {
	clear(o.pools)
	if o.cleared++; o.cleared%o.of == 1 {
		o.Listener.Cleared()
	}
}

// poolStats sums the states of pools.
func poolStats(pools []*kv.Pool) kv.Stats {
	all := pools[0].Stats()
	for _, p := range pools[1:] {
		all.Add(p.Stats())
	}
	return all
}
