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

// Options select the tiers; the zero value has none.
type Options struct {
	HostBytes int64  // bytes of host memory for pages that the device evicts
	DiskDir   string // folder of the disk cache; empty means that there is no disk cache
	DiskBytes int64
	StoreURL  string // URL of a store that speaks RESP; empty means that there is no store
	// KeepEarly stores pages in host memory as they become reusable, so that other engines can pull them (Stack.Serve).
	KeepEarly bool
	// Pull lets requests name another engine that holds their pages (Stack.FetchFrom).
	Pull bool
	// Wait is the maximum time that a request may lose by waiting for pages instead of computing them.
	Wait time.Duration
	// OnHost and OnDisk, if set, are called with the pages that are in host memory and in files, by any goroutine, one
	// at a time. They must not block. Pages of a store belong to all servers that share it.
	OnHost, OnDisk prefix.Listener
}

// Any reports whether the options select a tier.
func (o *Options) Any() bool {
	return o.HostBytes > 0 || o.DiskDir != "" || o.StoreURL != "" || o.Pull
}

// Leave reports whether pages leave the process.
func (o *Options) Leave() bool { return o.DiskDir != "" || o.StoreURL != "" || o.Pull || o.KeepEarly }

// transitBytes limits the memory of pages in transit between the device and tiers other than host memory, in bytes.
const transitBytes = 256 << 20

// Stack holds the tiers of one engine, nearest first. Its methods may be called from any goroutine and do not wait,
// except Close.
type Stack struct {
	spec   Spec                 // spec of pages that stay on this machine
	whole  atomic.Pointer[Spec] // spec of pages that leave the machine; nil until all weights were read
	memory *memory
	tiers  []Tier
	host   *host
	window int // maximum number of pages that one fetch has ready

	patience time.Duration // maximum time for an answer of a peer
	log      *slog.Logger

	ctx  context.Context // context that ends with the stack
	stop context.CancelFunc
	wait sync.WaitGroup // fetches, and the goroutine that reads weights

	mu      sync.Mutex
	fetches int                         // number of fetches that were not closed
	stops   map[string]map[string]int64 // number of pages not returned, by tier and reason
	peers   map[string]*store           // other engines, by address
}

// Open opens the tiers of the options. Without an allocator, pages are in ordinary memory that is allocated as needed;
// with an allocator, all memory is allocated now.
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

// Identify sets the digest of all weights: after this call pages may leave the machine. Pages on this machine's disk
// keep the identity with which they were stored.
func (s *Stack) Identify(weights Fingerprint) {
	spec := s.spec
	spec.Weights, spec.Whole, spec.Local = weights, true, Fingerprint{}
	s.whole.Store(&spec)
}

// IdentifyBy calls Identify with the result of read, in another goroutine, because read may take long.
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

// Identified reports whether the digest of all weights is known, so that pages may leave the machine.
func (s *Stack) Identified() bool { return s.whole.Load() != nil }

// outside returns the spec of pages that leave the machine, or nil.
func (s *Stack) outside() *Spec { return s.whole.Load() }

// Wants reports whether any tier would store a page on this occasion.
func (s *Stack) Wants(k prefix.Hash, o Occasion) bool {
	for _, t := range s.tiers {
		if t.Wants(k, o) {
			return true
		}
	}
	return false
}

// Room returns an empty page to be filled, with one reference, or nil if no memory is free.
func (s *Stack) Room() *Page {
	p := s.memory.take()
	if p == nil && s.host.shed() {
		p = s.memory.take()
	}
	return p
}

// room is like Room, but waits for memory.
func (s *Stack) room(ctx context.Context) *Page { return s.memory.wait(ctx, s.host.shed) }

// Keep passes a filled page to the tiers that store it on one of these occasions, and releases its reference.
func (s *Stack) Keep(p *Page, on ...Occasion) {
	for _, t := range s.tiers {
		if slices.ContainsFunc(on, func(o Occasion) bool { return t.Wants(p.Hash, o) }) {
			t.Put(p)
		}
	}
	p.Drop()
}

// Has reports whether a tier may hold a page.
func (s *Stack) Has(k prefix.Hash) bool {
	for _, t := range s.tiers {
		if t.Has(k) {
			return true
		}
	}
	return false
}

// Missed counts a page that no tier has, and returns the reason.
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

// stopped counts a page that a tier did not return, by reason.
func (s *Stack) stopped(tier, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stops[tier] == nil {
		s.stops[tier] = map[string]int64{}
	}
	s.stops[tier][reason]++
}

// Clear drops every page of every tier.
func (s *Stack) Clear() {
	for _, t := range s.tiers {
		t.Clear()
	}
}

// Counts returns the pages and counters of each tier, nearest first.
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

// Bytes returns the maximum host memory of pages.
func (s *Stack) Bytes() int64 { return int64(s.memory.most) * int64(s.memory.each) }

// PeerCount returns the sum of the counters of pages from other engines.
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

// Describe returns a description of the tiers, one line each.
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

// Held returns how many pages of host memory are in use, and how many fetches are open.
func (s *Stack) Held() (pages, fetches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory.inUse(), s.fetches
}

// Close ends fetches and closes every tier. Pages that callers still hold stay valid.
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
