package tier

import (
	"context"
	"slices"
	"strings"
	"sync"

	"sparrow/internal/kv/prefix"
	"sparrow/internal/kv/tier/resp"
)

// Fetch loads the pages of one prompt into host memory, in order, and a few pages ahead of the reader.
type Fetch struct {
	stack *Stack
	from  []Tier
	keys  []prefix.Hash
	wake  func()

	ctx  context.Context
	stop context.CancelFunc
	free chan struct{} // one element for each page that may be ready

	mu     sync.Mutex
	ready  []*Page
	tiers  []string // tier of each page that was ready
	ended  bool
	closed bool
	why    string
}

// Fetch starts to load pages. wake is called, from another goroutine, when Next has new results.
func (s *Stack) Fetch(keys []prefix.Hash, wake func()) *Fetch { return s.fetch(s.tiers, keys, wake) }

// FetchFrom is like Fetch, and also requests pages that no local tier has from another engine at the given host and
// port.
func (s *Stack) FetchFrom(address string, keys []prefix.Hash, wake func()) *Fetch {
	return s.fetch(append(slices.Clone(s.tiers), s.peer(address)), keys, wake)
}

// maxPeers is the maximum number of other engines whose connections and counters are kept.
const maxPeers = 256

// peer returns another engine as a read-only tier.
func (s *Stack) peer(address string) Tier {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[address]
	if p == nil {
		p = newStore("peer", resp.Address{Host: address}, s.patience, s.outside, s.log)
		p.least = 1
		close(p.stopped) // no goroutine writes to this tier
		if s.peers == nil || len(s.peers) >= maxPeers {
			for _, other := range s.peers {
				_ = other.Close() // its fetches continue; closing it cannot fail
			}
			s.peers = map[string]*store{}
		}
		s.peers[address] = p
	}
	return p
}

func (s *Stack) fetch(tiers []Tier, keys []prefix.Hash, wake func()) *Fetch {
	f := &Fetch{stack: s, from: tiers, keys: keys, wake: wake, free: make(chan struct{}, s.window)}
	f.ctx, f.stop = context.WithCancel(s.ctx)
	s.mu.Lock()
	s.fetches++
	s.mu.Unlock()
	s.wait.Go(f.run)
	return f
}

// run requests page after page from the tiers, nearest first.
func (f *Fetch) run() {
	var why []string
	failed := map[string]string{} // reason why a tier did not return a page that it had, by tier
	for at := 0; at < len(f.keys) && f.ctx.Err() == nil; {
		n := 0
		why = why[:0]
		for _, t := range f.from {
			var reason string
			n, reason = t.Load(f.ctx, f.keys[at:], f.stack.room, func(p *Page) bool { return f.deliver(p, t.Name()) })
			if reason != "" && reason != notHeld {
				failed[t.Name()] = reason
			}
			if n > 0 {
				break
			}
			if earlier, ok := failed[t.Name()]; ok {
				reason = earlier
			}
			if reason != "" {
				f.stack.stopped(t.Name(), reason)
				why = append(why, t.Name()+": "+reason)
			}
		}
		if n == 0 {
			break
		}
		at += n
	}
	f.mu.Lock()
	f.ended, f.why = true, strings.Join(why, ", ")
	f.mu.Unlock()
	f.wake()
}

// deliver waits for a free slot and makes a page ready. It returns false if the fetch was closed instead.
func (f *Fetch) deliver(p *Page, tier string) bool {
	select {
	case f.free <- struct{}{}:
	case <-f.ctx.Done():
		return false
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return false
	}
	f.ready, f.tiers = append(f.ready, p), append(f.tiers, tier)
	f.mu.Unlock()
	f.wake()
	return true
}

// Next returns the next page, with a reference for the caller, and the name of its tier. The page is nil if it has not
// arrived yet, or will not arrive; if it will not arrive, ended is set.
func (f *Fetch) Next() (p *Page, tier string, ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ready) == 0 {
		return nil, "", f.ended
	}
	p, tier = f.ready[0], f.tiers[0]
	f.ready, f.tiers = f.ready[1:], f.tiers[1:]
	<-f.free
	return p, tier, false
}

// Why returns, once the fetch has ended, the reason of each tier for not returning the next page; it is empty if all
// pages were loaded.
func (f *Fetch) Why() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.why
}

// Close ends the fetch and drops the pages that were not taken. A second call has no effect.
func (f *Fetch) Close() {
	f.stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.closed = true
	for _, p := range f.ready {
		p.Drop()
	}
	f.ready, f.tiers = nil, nil
	f.stack.mu.Lock()
	f.stack.fetches--
	f.stack.mu.Unlock()
}
