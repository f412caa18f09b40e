package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"sparrow/internal/kv"
	"sparrow/internal/kv/tier"
	"sparrow/internal/model"
	"sparrow/internal/sched"
	"sparrow/kernel"
)

// Pages leave the device in two ways: when the cache evicts them they are copied to host memory, and when they become
// reusable they are copied to the persistent tiers. Pages are copied back when a prompt begins with their tokens: the
// sequence is admitted, and each page is filled when it arrives instead of being computed. The loop copies a limited
// number of bytes between the device and host memory after each batch. Package tier transfers pages between host
// memory, disks and other machines.

// tiers connects the loop to the cache tiers. A nil *tiers does nothing.
type tiers struct {
	setup *setup
	inbox *inbox
	pools []*kv.Pool
	sched *sched.Scheduler
	stack *tier.Stack
	model model.Paged
	dev   kernel.Machine
	moves bool // the device copies pages asynchronously, from and to page-locked memory
	pulls bool // requests may name another engine from which their pages are fetched
	wait  time.Duration
	most  int // maximum number of bytes copied to the device between two batches (importBytes)
	log   *slog.Logger

	parts     []kernel.Tensor
	stored    []kv.Kept // pages that became reusable in this iteration and are not copied yet
	copies    []copying // enqueued copies from the device
	imports   []*tier.Page
	restoring []*choice // choices that wait for pages, in order of admission
	seeking   int       // number of waiting sequences whose pages are being fetched
	timer     *time.Timer
	latest    time.Duration // time of the latest batch
	stats     TierStats
}

// TierStats holds the counters of pages that are stored outside the device and of their reuse.
type TierStats struct {
	Tiers []tier.Count // counters of each tier, nearest first
	// Identified reports whether every byte of the weights has been hashed, so that pages may leave the machine.
	Identified bool

	Restored      int64 // sequences that got pages from tiers
	RestoredPages int64
	Tokens        int64 // tokens whose pages came from tiers
	Missed        int64 // sequences that stopped because no tier had their next page
	Slow          int64 // sequences that computed the rest of the prompt because pages arrived too slowly
	NoRoom        int64 // pages that were not copied because host memory was full
	// Saved is the time saved by copying pages instead of computing them. Lost is the time that sequences waited for
	// pages, minus the time to compute the copied pages, where that is positive.
	Saved, Lost time.Duration
}

// Restored describes the pages that tiers returned for a sequence.
type Restored struct {
	Tokens int
	Tiers  map[string]int // number of tokens from each tier
	Stop   string         // why no further page was restored; empty if all full pages were, or no fetch was started
	Period                // time during which the sequence waited for pages
}

// copying is a page that is being copied from the device.
type copying struct {
	page *tier.Page
	done kernel.Event
	on   []tier.Occasion
}

// restore is the transfer of a choice's pages from tiers.
type restore struct {
	fetch *tier.Fetch
	next  int // number of the page that the fetch delivers next
	begun time.Time
	admit bool // the choice is admitted and waits for pages
}

const (
	// importBytes is the number of bytes that are copied to the device between two batches, unless a quarter of the
	// latest batch's time allows more. Copying this many bytes over PCIe takes about a millisecond, a small delay for
	// other sequences.
	importBytes = 64 << 20
	// maxSeeking is the maximum number of waiting sequences for which pages are fetched before they are admitted.
	maxSeeking = 16
	// DefaultTierWait is the maximum time that a request may lose by waiting for pages.
	DefaultTierWait = 500 * time.Millisecond
)

// openTiers opens the configured tiers and sets the callbacks of the pool that copy pages to the tiers.
func openTiers(s *setup, in *inbox, pool *kv.Config) (*tiers, error) {
	if !s.cfg.Tiers.Any() {
		return nil, nil
	}
	cfg := &s.info.Config
	paged, ok := s.model.(model.Paged)
	switch {
	case !ok:
		return nil, fmt.Errorf("sparrow: cache pages of family %s cannot be copied from the device; omit the cache "+
			"tiers", s.model.Config().Family)
	case !s.reuse:
		return nil, errors.New("sparrow: tiers of the prefix cache are configured, but prefix reuse is off; remove " +
			"one of the two settings")
	}
	dev := s.model.Device()
	spec := tier.Spec{Model: string(s.model.Config().Family), Weights: s.cfg.Weights.Local, Local: s.cfg.Weights.Local,
		PageTokens: cfg.Page, Bytes: int(s.model.PageBytes(cfg)),
		// Rows computed on another device or with another plan differ in their last bits. The name includes device and
		// plan, so that results do not depend on which engine computed a page.
		Layout: fmt.Sprintf("%v+%v/%d %s plan %s", cfg.Layout, cfg.IndexLayout, cfg.Page, dev.Name(), cfg.Fingerprint)}
	if w := s.cfg.Weights.Whole; w != nil {
		spec.Weights, spec.Whole = *w, true
	}
	mover, moves := dev.(kernel.PageMover)
	var from tier.Allocator
	if moves {
		from = pinned{mover}
	}
	o := s.cfg.Tiers
	if o.Wait == 0 {
		o.Wait = DefaultTierWait
	}
	stack, err := tier.Open(o, spec, from, s.cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("sparrow: %w", err)
	}
	if w := &s.cfg.Weights; w.Whole == nil && w.Read != nil {
		stack.IdentifyBy(w.Read)
	}
	t := &tiers{setup: s, inbox: in, stack: stack, pulls: o.Pull, model: paged, dev: dev, moves: moves,
		wait: o.Wait, most: importBytes, log: s.cfg.Log}
	t.timer = time.AfterFunc(time.Hour, in.signal)
	t.timer.Stop()
	t.parts = paged.WindowParts(paged.PageParts(nil, 0), 0)
	var n int64
	for _, p := range t.parts {
		n += p.Extent()
	}
	if n != int64(spec.Bytes) {
		return nil, errors.Join(fmt.Errorf("sparrow: the parts of a page add up to %d bytes, but a page has %d", n,
			spec.Bytes), stack.Close())
	}
	pool.Copier, pool.Identity = t, fmt.Sprintf("%s %x", spec.Layout, s.cfg.Weights.Sampled)
	return t, nil
}

// pinned allocates page-locked host memory of a device.
type pinned struct{ kernel.PageMover }

func (p pinned) Take(bytes int) ([]byte, error) { return p.HostAlloc(int64(bytes)) }
func (p pinned) Free(b []byte) error            { return p.HostFree(b) }

// Stored queues a page for the persistent tiers. It is copied when the iteration ends, because the drafting layer
// writes its rows after the target's.
func (t *tiers) Stored(k kv.Kept) {
	if t.stack.Wants(k.Hash, tier.Stored) {
		t.stored = append(t.stored, k)
	}
}

// Leaving copies a page that is evicted from the device.
func (t *tiers) Leaving(k kv.Kept) {
	var on []tier.Occasion
	if i := slices.IndexFunc(t.stored, func(s kv.Kept) bool { return s.Page == k.Page }); i >= 0 {
		t.stored = slices.Delete(t.stored, i, i+1)
		on = append(on, tier.Stored)
	}
	if t.stack.Wants(k.Hash, tier.Leaving) {
		on = append(on, tier.Leaving)
	}
	if len(on) > 0 {
		t.copyOut(k, on)
	}
}

// copyOut enqueues the copy of a page to host memory. Operations enqueued later may overwrite the page.
func (t *tiers) copyOut(k kv.Kept, on []tier.Occasion) {
	p := t.stack.Room()
	if p == nil {
		t.stats.NoRoom++
		return
	}
	p.Stored = k.Stored
	p.Tokens, p.Salt = slices.Clone(k.Tokens), slices.Clone(k.Salt)
	done, err := kernel.Collect(t.dev, p.Data, t.partsOf(int(k.Page), int(k.Window)))
	if err != nil {
		// The next pass on the device returns the same error, and the requests get it from that pass.
		t.log.Warn("a page could not be copied from the device", "error", err)
		p.Drop()
		return
	}
	t.copies = append(t.copies, copying{p, done, on})
	if !t.moves {
		t.finishCopies()
	}
}

// partsOf returns the tensors of a page, one for each part. The result is valid until the next call.
func (t *tiers) partsOf(page, window int) []kernel.Tensor {
	t.parts = t.model.PageParts(t.parts[:0], page)
	if window >= 0 {
		t.parts = t.model.WindowParts(t.parts, window)
	}
	return t.parts
}

// settle ends an iteration: it copies pages that became reusable, and waits for the enqueued copies.
func (t *tiers) settle() {
	if t == nil {
		return
	}
	for _, k := range t.stored {
		t.copyOut(k, []tier.Occasion{tier.Stored})
	}
	t.stored = t.stored[:0]
	t.finishCopies()
	if len(t.imports) == 0 {
		return
	}
	if err := t.dev.Sync(); err != nil {
		t.log.Warn("copies to the device failed", "error", err) // the next pass of the device returns the error
	}
	for i, p := range t.imports {
		p.Drop()
		t.imports[i] = nil
	}
	t.imports = t.imports[:0]
}

// finishCopies waits for copies from the device and passes the pages to the tiers.
func (t *tiers) finishCopies() {
	for i, c := range t.copies {
		if err := c.done.Wait(); err != nil {
			t.log.Warn("a page could not be copied from the device", "error", err)
			c.page.Drop()
		} else {
			t.stack.Keep(c.page, c.on...)
		}
		t.copies[i] = copying{}
	}
	t.copies = t.copies[:0]
}

// seek starts to fetch pages for a waiting sequence, so that the pages are in host memory when it is admitted.
func (t *tiers) seek(c *choice) {
	if t == nil || t.seeking >= maxSeeking || c.seq.After != nil {
		return
	}
	pages := 0
	for _, pool := range t.pools {
		m, err := pool.Peek(c.seq.Tokens, c.seq.Options())
		if err != nil {
			return
		}
		pages = max(pages, m.Pages)
	}
	if t.fetch(c, pages) {
		t.seeking++
	}
}

// fetch starts to fetch the pages of a choice, beginning with page number from, and reports whether any tier may have
// them.
func (t *tiers) fetch(c *choice, from int) bool {
	chain, err := t.pools[0].Chain(c.seq.Tokens, c.seq.Options())
	if err != nil || from >= len(chain) {
		return false
	}
	if peer := c.job.request.PagesFrom; peer != "" && t.pulls {
		c.restore = &restore{next: from, fetch: t.stack.FetchFrom(peer, chain[from:], t.inbox.signal)}
		return true
	}
	if !t.stack.Has(chain[from]) {
		return false
	}
	c.restore = &restore{next: from, fetch: t.stack.Fetch(chain[from:], t.inbox.signal)}
	return true
}

// admit decides whether a sequence that was just admitted waits for pages.
func (t *tiers) admit(q *sched.Sequence) bool {
	c, from := q.Owner.(*choice), q.Match.Pages
	c.restored = Restored{}
	if c.restore != nil {
		t.seeking--
		if c.restore.next > from { // pages that the pool had when the sequence arrived were evicted since then
			c.restore.fetch.Close()
			c.restore = nil
		}
	}
	if c.restore == nil && !t.fetch(c, from) {
		if whole := (len(q.Tokens) - max(q.Logits, 1)) / t.pools[0].Tag().PageTokens; from < whole {
			t.stats.Missed++
			c.restored.Stop = t.stack.Missed()
		}
		return false
	}
	c.restore.begun, c.restore.admit = t.setup.now(), true
	t.restoring = append(t.restoring, c)
	t.inbox.signal() // the fetch may have sent all its signals already
	return true
}

// release cancels the fetch of a choice that releases its pages.
func (t *tiers) release(c *choice) {
	if t == nil || c.restore == nil {
		return
	}
	c.restore.fetch.Close()
	if !c.restore.admit {
		t.seeking--
	}
	c.restore = nil
	t.restoring = slices.DeleteFunc(t.restoring, func(x *choice) bool { return x == c })
}

// advance copies the pages that have arrived to the device. Sequences that have all their pages, or have waited too
// long, continue. advance reports whether it changed anything.
func (t *tiers) advance() bool {
	if t == nil || len(t.restoring) == 0 {
		return false
	}
	budget, did, until := t.most, false, t.setup.now().Add(t.latest/4)
	var next time.Time // next time at which a sequence stops waiting
	for _, c := range slices.Clone(t.restoring) {
		for c.restore != nil && (budget > 0 || t.setup.now().Before(until)) {
			p, from, ended := c.restore.fetch.Next()
			if p == nil {
				now, late := t.setup.now(), t.deadline(c)
				switch {
				case ended:
					t.finish(c, c.restore.fetch.Why())
				case !now.Before(late):
					t.stats.Slow++
					t.finish(c, fmt.Sprintf("pages arrived too slowly: the sequence waited %v longer than computing "+
						"them takes", t.wait))
				default:
					if next.IsZero() || late.Before(next) {
						next = late
					}
				}
				did = did || c.restore == nil
				break
			}
			budget -= len(p.Data)
			did = true
			t.take(c, p, from)
		}
	}
	if !next.IsZero() {
		t.timer.Reset(next.Sub(t.setup.now()))
	}
	return did
}

// deadline returns the time at which a choice stops waiting and computes the rest of its prompt. At that time, the
// request has waited the maximum allowed time longer than computing the restored tokens would have taken.
func (t *tiers) deadline(c *choice) time.Time {
	return c.restore.begun.Add(t.wait + t.computing(c))
}

// take copies a fetched page to the device as the next page of a choice.
func (t *tiers) take(c *choice, p *tier.Page, from string) {
	q, size := &c.seq, t.pools[0].Tag().PageTokens
	number := c.restore.next
	c.restore.next++
	if number < q.Cached()/size { // the pool already had the page
		p.Drop()
		return
	}
	err := t.fill(c, p, number*size)
	if err != nil {
		p.Drop()
		t.finish(c, err.Error())
		return
	}
	if t.moves {
		t.imports = append(t.imports, p)
	} else {
		p.Drop()
	}
	if c.restored.Tiers == nil {
		c.restored.Tiers = map[string]int{}
		t.stats.Restored++
	}
	c.restored.Tokens += size
	c.restored.Tiers[from] += size
	t.stats.RestoredPages++
	t.stats.Tokens += int64(size)
}

// fill copies a page to the device, as the page of a choice that begins at token at.
func (t *tiers) fill(c *choice, p *tier.Page, at int) error {
	q := &c.seq
	if !slices.Equal(p.Tokens, q.Tokens[at:at+len(p.Tokens)]) {
		return errors.New("the tokens of a fetched page differ from those of the " +
			"prompt") // the hash collides with another prompt's hash: this prompt is computed
	}
	page, window, err := t.sched.RestorePage(q)
	if err != nil {
		return err
	}
	if err := kernel.Distribute(t.dev, t.partsOf(int(page), int(window)), p.Data); err != nil {
		return fmt.Errorf("copying a page to the device: %w", err)
	}
	return t.sched.Restored(q)
}

// finish ends the transfer of pages for a choice; the rest of its prompt is computed.
func (t *tiers) finish(c *choice, why string) {
	took := t.setup.since(c.restore.begun)
	if saved := t.computing(c) - took; saved > 0 {
		t.stats.Saved += saved
	} else {
		t.stats.Lost -= saved
	}
	if c.restored.Stop = why; c.restored.Tokens == 0 {
		t.stats.Missed++
	}
	c.restored.Period = Period{c.restore.begun, t.setup.now()}
	t.sched.EndRestore(&c.seq)
	t.release(c)
}

// computing returns the time that computing the restored tokens of a choice would take; 0 before any prompt was
// computed.
func (t *tiers) computing(c *choice) time.Duration {
	n := c.restored.Tokens
	return t.sched.PromptTime(n, max(c.restore.next*t.pools[0].Tag().PageTokens-n, 0))
}

func (t *tiers) noteBatch(took time.Duration) {
	if t != nil {
		t.latest = took
	}
}

// close cancels all transfers and closes the tiers.
func (t *tiers) close() {
	if t == nil {
		return
	}
	t.timer.Stop()
	t.settle()
	for _, c := range slices.Clone(t.restoring) {
		t.release(c)
	}
	if t.inbox.discard {
		t.stack.Clear()
	}
	if err := t.stack.Close(); err != nil {
		t.log.Warn("closing the tiers of the prefix cache failed", "error", err)
	}
}

// clear drops every page of every tier, including pages in transfer. Sequences that wait for pages compute their
// prompts instead.
func (t *tiers) clear() {
	if t == nil {
		return
	}
	for _, c := range slices.Clone(t.restoring) {
		t.finish(c, "the cache was cleared")
	}
	for _, q := range t.sched.All() {
		t.release(q.Owner.(*choice))
	}
	t.stack.Clear()
}

func (t *tiers) counts() []tier.Count {
	list := t.stack.Counts()
	if t.pulls {
		list = append(list, t.stack.PeerCount())
	}
	return list
}

// ServePages serves pages of host memory to other engines, until the listener or the engine is closed.
func (e *Engine) ServePages(l net.Listener) error {
	if e.loop.tiers == nil || e.cfg.Tiers.HostBytes == 0 {
		return errors.New("sparrow: pages are served from the host cache, but no host cache is configured; set " +
			"Config.Tiers.Host (--host-cache)")
	}
	e.loop.tiers.stack.Serve(l)
	return nil
}

// Discard makes Close drop all pages in all tiers, so that no page that this engine computed is used again.
func (e *Engine) Discard() {
	e.tally.Lock()
	defer e.tally.Unlock()
	e.inbox.discard = true
}

// Settle waits until the pages of all answered requests are stored in the tiers, or until ctx or the engine ends.
func (e *Engine) Settle(ctx context.Context) {
	_ = e.inbox.await(ctx, &e.inbox.settles) // the caller continues also if ctx or the engine ends first
}
