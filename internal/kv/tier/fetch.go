package tier

import (
	"context"
	"slices"
	"strings"
	"sync"

	"sparrow/internal/kv/prefix"
	"sparrow/internal/kv/tier/resp"
)

// Fetch loads the pages of one prompt into host memory, in order, a few pages ahead of the reader.
type Fetch struct {
	stack *Stack
	from  []Tier
	keys  []prefix.Hash
	wake  func()

	ctx  context.Context
	stop context.CancelFunc
	free chan struct{} // semaphore: one element for each page that may become ready

	mu     sync.Mutex
	ready  []*Page
	tiers  []string // [ready pages] tier from which the page was loaded
	ended  bool
	closed bool
	why    string
}

// Fetch starts loading pages. wake is called from another goroutine when Next has a new result.
func (s *Stack) Fetch(keys []prefix.Hash, wake func()) *Fetch { return s.fetch(s.tiers, keys, wake) }

// FetchFrom does what Fetch does, and requests pages that no local tier has from the engine at address, HOST:PORT.
func (s *Stack) FetchFrom(address string, keys []prefix.Hash, wake func()) *Fetch {
	return s.fetch(append(slices.Clone(s.tiers), s.peer(address)), keys, wake)
}

// maxPeers is the maximum number of other engines with kept connections and counters.
const maxPeers = 256

// peer returns another engine as a tier that is only read.
func (s *Stack) peer(address string) Tier {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[address]
	if p == nil {
		p = newStore("peer", resp.Address{Host: address}, s.patience, s.outside, s.log)
		p.least = 1
		close(p.stopped) // the tier has no goroutine that writes
		if s.peers == nil || len(s.peers) >= maxPeers {
			for _, other := range s.peers {
				_ = other.Close() // running fetches continue; closing cannot fail
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

// run loads one page after the other from the first tier that has it.
func (f *Fetch) run() {
	var why []string
	failed := map[string]string{} // [tier] reason why it did not return a page that it has
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

// deliver makes a page ready, after waiting for a free slot. It returns false if the fetch was closed.
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

// Next returns the next page, with a reference for the caller, and the name of its tier. The page is nil if it is not
// loaded yet or, if ended is true, will not be loaded.
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

// Why returns, after the fetch has ended, why each tier did not return the next page. It is empty if all pages were
// loaded.
func (f *Fetch) Why() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.why
}

// Close ends the fetch and releases the pages that were not taken. It may be called more than once.
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
