package engine

import (
	"sparrow/internal/kv"
	"sparrow/internal/kv/prefix"
	"sparrow/plan"
)

// If the ranks of a model share attention by requests, each rank has its own pool of pages. The pages and window pages
// of rank r are numbered after those of the previous ranks, so that a page number is unique in the whole model. Other
// models have one pool.

// poolsOf returns the number of page pools of a configuration.
func poolsOf(cfg *plan.Config) int {
	if cfg.Model.ByRequests() {
		return cfg.Model.Ranks
	}
	return 1
}

// openPools makes n pools, each with the numbers of pages and window pages in c.
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

// onceStored forwards the events of several pools to a listener as the events of one pool: Stored when the first pool
// stores a page, Removed when the last pool removes it.
type onceStored struct {
	prefix.Listener
	of      int                 // number of pools
	pools   map[prefix.Hash]int // number of pools that hold each page
	root    bool                // the root was forwarded
	cleared int                 // number of pools that were cleared
}

// Root forwards the root of prompts without a salt, which all pools share.
func (o *onceStored) Root(h prefix.Hash) {
	if l, ok := o.Listener.(interface{ Root(prefix.Hash) }); ok && !o.root {
		l.Root(h)
	}
	o.root = true
}

// Stored forwards the event if no other pool holds the page.
func (o *onceStored) Stored(s prefix.Stored) {
	if o.pools[s.Hash]++; o.pools[s.Hash] == 1 {
		o.Listener.Stored(s)
	}
}

// Removed forwards the event if no pool holds the page any more.
func (o *onceStored) Removed(h prefix.Hash) {
	if o.pools[h]--; o.pools[h] <= 0 {
		delete(o.pools, h)
		o.Listener.Removed(h)
	}
}

// Cleared forwards the event of the first pool only, because the engine clears all pools one after another.
func (o *onceStored) Cleared() {
	clear(o.pools)
	if o.cleared++; o.cleared%o.of == 1 {
		o.Listener.Cleared()
	}
}

// poolStats returns the sum of the statistics of pools.
func poolStats(pools []*kv.Pool) kv.Stats {
	all := pools[0].Stats()
	for _, p := range pools[1:] {
		all.Add(p.Stats())
	}
	return all
}
