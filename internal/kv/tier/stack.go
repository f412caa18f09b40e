package tier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sparrow/internal/kv/prefix"
	"sparrow/internal/unit"
)

// Options selects and configures the tiers; the zero value has no tiers.
type Options struct {
	HostBytes int64  // bytes of host memory for evicted pages
	DiskDir   string // folder of the disk cache; empty means none
	DiskBytes int64
	StoreURL  string // URL of a shared store with RESP; empty means none
	// KeepEarly stores pages in host memory when they become reusable, so that other engines can read them
	// (Stack.Serve).
	KeepEarly bool
	// Pull allows requests to name another engine that has their pages (Stack.FetchFrom).
	Pull bool
	// Wait is the maximum time that a request waits for pages instead of computing them.
	Wait time.Duration
	// OnHost and OnDisk, if not nil, are called when pages in host memory and in files are stored or removed. Calls may
	// come from any goroutine but do not overlap; they must not block. Pages of a shared store are not reported.
	OnHost, OnDisk prefix.Listener
}

// Any reports whether the options select at least one tier.
func (o *Options) Any() bool {
	return o.HostBytes > 0 || o.DiskDir != "" || o.StoreURL != "" || o.Pull
}

// Leave reports whether the options let pages leave the process.
func (o *Options) Leave() bool { return o.DiskDir != "" || o.StoreURL != "" || o.Pull || o.KeepEarly }

// transitBytes is the maximum memory, in bytes, of pages being copied between the device and files or stores.
const transitBytes = 256 << 20

// Stack holds the tiers of one engine, nearest first. Its methods are safe for concurrent use and, except Close, do not
// block.
type Stack struct {
	spec   Spec                 // spec of pages that stay on this machine
	whole  atomic.Pointer[Spec] // spec of pages that leave the machine; nil until the weights' digest is known
	memory *memory
	tiers  []Tier
	host   *host
	window int // maximum number of ready pages of a fetch

	patience time.Duration // maximum time for a reply of another engine
	log      *slog.Logger

	ctx  context.Context // cancelled by Close
	stop context.CancelFunc
	wait sync.WaitGroup // fetches, and the goroutine that reads the weights

	mu      sync.Mutex
	fetches int                         // number of open fetches
	stops   map[string]map[string]int64 // [tier][reason] number of pages that were not returned
	peers   map[string]*store           // [address] other engines
}

// Open opens the tiers. If from is nil, ordinary memory is allocated as needed; otherwise all memory is allocated at
// once.
func Open(o Options, spec Spec, from Allocator, log *slog.Logger) (*Stack, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	lazy := from == nil
	if lazy {
		from = plain{}
	}
	hosted := int(o.HostBytes / int64(spec.Bytes))
	transit := max(transitBytes/spec.Bytes, 8)
	s := &Stack{spec: spec, stops: map[string]map[string]int64{}, host: newHost(hosted, listener(o.OnHost)),
		window: max(min(transit/4, 32), 1), patience: o.Wait, log: log,
		memory: &memory{from: from, each: spec.Bytes, most: hosted + transit}}
	s.host.early = o.KeepEarly
	if spec.Whole {
		s.Identify(spec.Weights)
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	if !lazy && !s.memory.fill() {
		return nil, errors.Join(fmt.Errorf("tier: %d bytes of page-locked memory for %d pages are not available; "+
			"choose a smaller --host-cache", int64(hosted+transit)*int64(spec.Bytes), hosted+transit), s.Close())
	}
	if o.HostBytes > 0 {
		s.tiers = append(s.tiers, s.host)
	}
	if o.DiskDir != "" {
		d, err := openDisk(o.DiskDir, o.DiskBytes, &s.spec, listener(o.OnDisk), log)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.tiers = append(s.tiers, d)
	}
	if o.StoreURL != "" {
		x, err := openStore(o.StoreURL, o.Wait, s.outside, log)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.tiers = append(s.tiers, x)
	}
	return s, nil
}

// Identify sets the digest of all weights, so that pages may leave the machine. Pages on this machine's disk keep their
// identity.
func (s *Stack) Identify(weights Fingerprint) {
	spec := s.spec
	spec.Weights, spec.Whole, spec.Local = weights, true, Fingerprint{}
	s.whole.Store(&spec)
}

// IdentifyBy calls read, which may take long, in a goroutine, and then Identify with the result.
func (s *Stack) IdentifyBy(read func(context.Context) (Fingerprint, error)) {
	s.wait.Go(func() {
		weights, err := read(s.ctx)
		switch {
		case err == nil:
			s.Identify(weights)
			s.log.Info("all weights have been read; pages of the cache may now leave this machine")
		case s.ctx.Err() == nil:
			s.log.Warn("reading the weights failed; pages of the cache stay on this machine", "error",
				err)
		}
	})
}

// Identified reports whether the digest of all weights is known.
func (s *Stack) Identified() bool { return s.whole.Load() != nil }

// outside returns the spec for pages that leave the machine, or nil while the digest is not known.
func (s *Stack) outside() *Spec { return s.whole.Load() }

// Wants reports whether any tier stores a page on this occasion.
func (s *Stack) Wants(k prefix.Hash, o Occasion) bool {
	for _, t := range s.tiers {
		if t.Wants(k, o) {
			return true
		}
	}
	return false
}

// Room returns a page with one reference, to be filled, or nil if no memory is free.
func (s *Stack) Room() *Page {
	p := s.memory.take()
	if p == nil && s.host.shed() {
		p = s.memory.take()
	}
	return p
}

// room returns a page as Room does, but waits until memory is free or ctx ends.
func (s *Stack) room(ctx context.Context) *Page { return s.memory.wait(ctx, s.host.shed) }

// Keep passes a filled page to the tiers that store it on one of these occasions, and drops the caller's reference.
func (s *Stack) Keep(p *Page, on ...Occasion) {
	for _, t := range s.tiers {
		if slices.ContainsFunc(on, func(o Occasion) bool { return t.Wants(p.Hash, o) }) {
			t.Put(p)
		}
	}
	p.Drop()
}

// Has reports whether a tier may have a page.
func (s *Stack) Has(k prefix.Hash) bool {
	for _, t := range s.tiers {
		if t.Has(k) {
			return true
		}
	}
	return false
}

// Missed counts a page that no tier has, and returns the reasons.
func (s *Stack) Missed() string {
	why := make([]string, len(s.tiers))
	for i, t := range s.tiers {
		reason := notHeld
		if _, shared := t.(*store); shared && !s.Identified() {
			reason = notKnown
		}
		s.stopped(t.Name(), reason)
		why[i] = t.Name() + ": " + reason
	}
	return strings.Join(why, ", ")
}

// stopped counts a page that a tier has not returned, by reason.
func (s *Stack) stopped(tier, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stops[tier] == nil {
		s.stops[tier] = map[string]int64{}
	}
	s.stops[tier][reason]++
}

// Clear drops all pages of all tiers.
func (s *Stack) Clear() {
	for _, t := range s.tiers {
		t.Clear()
	}
}

// Counts returns the numbers of pages and the counters of each tier, fastest first.
func (s *Stack) Counts() []Count {
	out := make([]Count, len(s.tiers))
	for i, t := range s.tiers {
		out[i] = t.Count()
		s.mu.Lock()
		out[i].Stops = maps.Clone(s.stops[out[i].Tier])
		s.mu.Unlock()
	}
	return out
}

// Bytes returns the maximum bytes of host memory for pages.
func (s *Stack) Bytes() int64 { return int64(s.memory.most) * int64(s.memory.each) }

// PeerCount returns the counters for pages from other engines, added up.
func (s *Stack) PeerCount() Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := Count{Tier: "peer", Stops: maps.Clone(s.stops["peer"])}
	for _, p := range s.peers {
		c := p.Count()
		all.Hits += c.Hits
		all.HitBytes += c.HitBytes
		all.Damaged += c.Damaged
		all.Failed += c.Failed
		all.Busy += c.Busy
	}
	return all
}

// Describe returns one line of text per tier.
func (s *Stack) Describe() []string {
	var out []string
	for _, t := range s.tiers {
		switch x := t.(type) {
		case *host:
			out = append(out, fmt.Sprintf("host memory for %d pages (%s)", x.most,
				unit.Bytes(int64(x.most)*int64(s.spec.Bytes))))
		case *disk:
			out = append(out, fmt.Sprintf("files in %s (%s)", x.dir, unit.Bytes(x.most)))
		case *store:
			out = append(out, "the store at "+x.at.Host)
		}
	}
	return out
}

// Held returns the number of pages in use and of open fetches.
func (s *Stack) Held() (pages, fetches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory.inUse(), s.fetches
}

// Close ends all fetches and closes all tiers. Pages that callers hold stay valid.
func (s *Stack) Close() (err error) {
	s.stop()
	s.wait.Wait()
	for _, t := range s.tiers {
		err = errors.Join(err, t.Close())
	}
	for _, p := range s.peers {
		err = errors.Join(err, p.Close())
	}
	return errors.Join(err, s.memory.close())
}
