package tier

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"sparrow/internal/kv/prefix"
	"sparrow/internal/kv/tier/resp"
)

const (
	// Prefix of keys, followed by the beginning of the weights' digest and the page's hash.
	storeKeys  = "sparrow:page:2:"
	storeQueue = 64      // maximum number of pages queued for writing; if it is exceeded, pages are not stored
	storeAhead = 8       // maximum number of requests whose replies are pending
	storeIdle  = 8       // maximum number of idle connections
	storeKnown = 1 << 16 // maximum number of pages that are known to be in the store
	// storeTokens is the minimum number of tokens to load from the store; fewer are computed faster than loaded.
	storeTokens = 256
	// After an error the store is not used for storePause, which doubles with each further error up to storePauseMost.
	storePause, storePauseMost = time.Second, 30 * time.Second
	// writeTime is the maximum time to write a page.
	writeTime = 10 * time.Second
)

// store is a tier in a store that several servers share, accessed with RESP. One goroutine writes pages; each fetch
// reads with its own connection.
type store struct {
	at   resp.Address
	spec func() *Spec  // nil until the digest of the weights is known: until then the store is not used
	wait time.Duration // maximum time for a reply
	log  *slog.Logger
	// least is the minimum number of tokens to load from the store.
	least int

	ctx     context.Context // cancelled when the tier closes
	stop    context.CancelFunc
	writes  chan *Page
	stopped chan struct{}

	mu      sync.Mutex
	idle    []*resp.Conn
	known   map[prefix.Hash]bool // pages in the store: true if valid, false if damaged
	pending map[prefix.Hash]bool // pages queued for writing
	down    time.Time            // time until which the store is not used
	full    time.Time            // time until which nothing is written
	pause   time.Duration
	count   Count
}

func openStore(url string, wait time.Duration, spec func() *Spec, log *slog.Logger) (*store, error) {
	at, err := resp.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("tier: the page store: %w (--page-store)", err)
	}
	s := newStore("store", at, wait, spec, log)
	go s.write()
	return s, nil
}

// newStore returns a store without a goroutine for writing.
func newStore(name string, at resp.Address, wait time.Duration, spec func() *Spec, log *slog.Logger) *store {
	s := &store{at: at, spec: spec, wait: wait, log: log, least: storeTokens, writes: make(chan *Page, storeQueue),
		stopped: make(chan struct{}), known: map[prefix.Hash]bool{}, pending: map[prefix.Hash]bool{},
		count: Count{Tier: name}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

func (s *store) Name() string { return s.count.Tier }

// Wants reports whether a page is to be stored: when it becomes reusable, unless the store is known to have it.
func (s *store) Wants(k prefix.Hash, o Occasion) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	return o == Stored && s.spec() != nil && !s.known[k] && !s.pending[k] && now.After(s.down) && now.After(s.full)
}

// Has reports whether the store can be used. After an error it returns true to one caller per pause, until a request
// succeeds.
func (s *store) Has(prefix.Hash) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spec() == nil {
		return false
	}
	if s.pause == 0 {
		return true
	}
	if now := time.Now(); now.After(s.down) {
		s.down = now.Add(s.pause)
		return true
	}
	return false
}

func (s *store) Put(p *Page) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil || s.pending[p.Hash] {
		return
	}
	p.Hold()
	select {
	case s.writes <- p:
		s.pending[p.Hash] = true
	default:
		s.count.Dropped++
		p.Drop()
	}
}

// connect returns an idle connection, or a new one if there is none or again is true.
func (s *store) connect(ctx context.Context, again bool) (c *resp.Conn, kept bool, err error) {
	s.mu.Lock()
	if n := len(s.idle); n > 0 && !again {
		c = s.idle[n-1]
		s.idle = s.idle[:n-1]
	}
	s.mu.Unlock()
	if c != nil {
		return c, true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	c, err = resp.Dial(ctx, s.at)
	return c, false, err
}

// giveBack keeps a connection for later use, if all its replies were read.
func (s *store) giveBack(c *resp.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) < storeIdle && s.ctx.Err() == nil {
		s.idle = append(s.idle, c)
		return
	}
	c.Close()
}

// failed records an error of the store and starts a pause.
func (s *store) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count.Failed++
	if s.pause == 0 {
		s.log.Warn("the page store failed; prompts are computed, and the store is tried again later", "store",
			s.at.Host,
			"error", err)
	}
	s.pause = min(max(2*s.pause, storePause), storePauseMost)
	s.down = time.Now().Add(s.pause)
	for _, c := range s.idle {
		c.Close()
	}
	s.idle = nil
}

// answered records that the store responds, which ends the pause.
func (s *store) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pause > 0 {
		s.log.Info("the page store works again", "store", s.at.Host)
	}
	s.pause, s.down = 0, time.Time{}
}

// noAnswer is the reason for pages that a store does not return because it is down, slow or returns errors.
const noAnswer = "does not answer"

// notKnown is the reason for pages on other machines while the digest of the weights is not known.
const notKnown = "not used until all weights are read"

// keyOf returns the key of a page in a store, which depends on the weights.
func (s *Spec) keyOf(k prefix.Hash) string { return s.keys() + k.String() }

// keys returns the prefix that the keys of all pages share.
func (s *Spec) keys() string { return storeKeys + hex.EncodeToString(s.Weights[:8]) + ":" }

// Load loads pages, with a few requests ahead of the reply that it reads.
func (s *store) Load(ctx context.Context, keys []prefix.Hash, room func(context.Context) *Page,
	deliver func(*Page) bool) (n int, why string) {
	spec := s.spec()
	if spec == nil {
		return 0, notKnown
	}
	if len(keys)*spec.PageTokens < s.least {
		return 0, fmt.Sprintf("not used for fewer than %d tokens", s.least)
	}
	begun := time.Now()
	defer func() {
		s.mu.Lock()
		s.count.Busy += time.Since(begun)
		s.mu.Unlock()
	}()
	var l loading
	var err error
	for again := false; ; again = true {
		var kept bool
		l = loading{store: s, spec: spec, keys: keys}
		why, kept, err = l.tryConnection(ctx, again, room, deliver)
		// An error on a connection that was idle is not an error of the store, which may have closed the connection.
		if again || !kept || err == nil || l.read > 0 || ctx.Err() != nil {
			break
		}
	}
	switch {
	case err != nil && ctx.Err() == nil:
		s.failed(err)
	case err == nil && l.read > 0:
		s.answered()
	}
	return l.delivered, why
}

// tryConnection loads pages with one connection.
func (l *loading) tryConnection(ctx context.Context, again bool, room func(context.Context) *Page,
	deliver func(*Page) bool) (why string, kept bool, err error) {
	if l.conn, kept, err = l.connect(ctx, again); err != nil {
		return noAnswer, kept, err
	}
	undo := context.AfterFunc(ctx, l.conn.Interrupt)
	why, err = l.run(ctx, room, deliver)
	if undone := undo(); undone && err == nil && l.asked == l.read && !l.rest {
		l.giveBack(l.conn)
	} else {
		l.conn.Close()
	}
	return why, kept, err
}

// loading is the state of one call of Load.
type loading struct {
	*store
	spec                   *Spec
	conn                   *resp.Conn
	keys                   []prefix.Hash
	asked, read, delivered int
	rest                   bool // whether a reply was not read completely, so that the connection cannot be kept
}

// run loads pages and returns the reason why it stopped. err is an error of the connection.
func (l *loading) run(ctx context.Context, room func(context.Context) *Page, deliver func(*Page) bool) (string, error) {
	ahead := 1 // begin with one request: if the store does not have the first page, no others are needed
	for l.delivered < len(l.keys) {
		if err := l.ask(ahead); err != nil {
			return noAnswer, err
		}
		ahead = storeAhead
		if err := l.conn.Deadline(time.Now().Add(l.wait)); err != nil {
			return noAnswer, err
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		r, err := l.conn.Reply()
		if err != nil {
			return noAnswer, err
		}
		key := l.keys[l.read]
		l.read++
		switch {
		case r.Kind == resp.Nil:
			l.forget(key)
			return notHeld, nil
		case r.Kind != resp.Bulk:
			return "answers with an error", r.Err()
		case r.Len != int64(l.spec.Size()):
			l.rest = true
			l.damaged(key)
			return "damaged", nil
		}
		p := room(ctx)
		if p == nil {
			l.rest = true
			return noMemory, nil
		}
		if err := l.spec.read(p, key, l.conn, r.Len); err != nil {
			p.Drop()
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrOther) {
				return noAnswer, err
			}
			l.rest = true
			l.damaged(key)
			return "damaged", nil
		}
		l.hit(key)
		if !deliver(p) {
			p.Drop()
			return "", nil
		}
		l.delivered++
	}
	return "", nil
}

// ask sends requests until the number of pending replies is ahead.
func (l *loading) ask(ahead int) error {
	var b []byte
	for l.asked < len(l.keys) && l.asked-l.read < ahead {
		b = resp.AppendCommand(b, -1, "GET", l.spec.keyOf(l.keys[l.asked]))
		l.asked++
	}
	if b == nil {
		return nil
	}
	if err := l.conn.Deadline(time.Now().Add(l.wait)); err != nil {
		return err
	}
	return l.conn.Send(b)
}

func (s *store) hit(k prefix.Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count.Hits++
	s.count.HitBytes += int64(s.spec().Bytes)
	s.remember(k, true)
}

// remember records that the store has a page; whole is false if it is damaged. The caller holds mu.
func (s *store) remember(k prefix.Hash, whole bool) {
	if len(s.known) >= storeKnown {
		clear(s.known)
	}
	s.known[k] = whole
}

// forget records that the store does not have a page.
func (s *store) forget(k prefix.Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, k)
}

// damaged records that the store has a damaged page, which must be written again.
func (s *store) damaged(k prefix.Hash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count.Damaged++; s.count.Damaged == 1 {
		s.log.Warn("a page in the page store is damaged; it is computed and written again",
			"store", s.at.Host, "page", k)
	}
	s.remember(k, false)
}

// write writes queued pages until the tier closes. Only its goroutine writes.
func (s *store) write() {
	defer close(s.stopped)
	for {
		select {
		case p := <-s.writes:
			s.keep(p)
		case <-s.ctx.Done():
			for {
				select {
				case p := <-s.writes:
					p.Drop()
				default:
					return
				}
			}
		}
	}
}

// keep writes a page to the store, unless the store has it, and releases the page's reference.
func (s *store) keep(p *Page) {
	defer p.Drop()
	defer func() {
		s.mu.Lock()
		delete(s.pending, p.Hash)
		s.mu.Unlock()
	}()
	s.mu.Lock()
	whole, known := s.known[p.Hash]
	skip := time.Now().Before(s.down) || time.Now().Before(s.full)
	if skip {
		s.count.Dropped++
	}
	s.mu.Unlock()
	if skip {
		return
	}
	wrote, err := s.set(p, known && !whole)
	var refused *resp.ServerError
	switch {
	case s.ctx.Err() != nil:
	case errors.As(err, &refused):
		s.refused(refused)
	case err != nil:
		s.failed(err)
	default:
		s.answered()
		s.mu.Lock()
		if wrote {
			s.count.Stored++
		}
		s.remember(p.Hash, true)
		s.mu.Unlock()
	}
}

// refused records that the store accepts no pages for a while, because it is full or a read-only replica.
func (s *store) refused(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count.Failed++; time.Since(s.full) > time.Minute {
		s.log.Warn("the page store accepts no pages; pages are not stored there for now", "store", s.at.Host, "error",
			err)
	}
	s.full = time.Now().Add(storePause)
}

// set writes a page to the store. It sends the page, and returns true, unless the store has an undamaged copy.
func (s *store) set(p *Page, damaged bool) (wrote bool, err error) {
	for again := false; ; again = true {
		c, kept, err := s.connect(s.ctx, again)
		if err != nil {
			return false, err
		}
		undo := context.AfterFunc(s.ctx, c.Interrupt)
		wrote, err = s.setOn(c, p, damaged)
		var refused *resp.ServerError
		if undone := undo(); undone && (err == nil || errors.As(err, &refused)) {
			s.giveBack(c)
			return wrote, err
		}
		c.Close()
		if !kept || s.ctx.Err() != nil { // the store may have closed an idle connection
			return wrote, err
		}
	}
}

// setOn stores a page over the connection c, as set does.
func (s *store) setOn(c *resp.Conn, p *Page, damaged bool) (bool, error) {
	spec := s.spec()
	key := spec.keyOf(p.Hash)
	if err := c.Deadline(time.Now().Add(s.wait)); err != nil {
		return false, err
	}
	if !damaged {
		r, err := c.Do("EXISTS", key)
		if err == nil && r.Kind != resp.Integer {
			err = r.Err()
		}
		if err != nil {
			return false, err
		}
		if r.Int > 0 {
			return false, nil
		}
	}
	if err := c.Deadline(time.Now().Add(writeTime)); err != nil {
		return false, err
	}
	command := []string{"SET", key}
	header := spec.AppendHeader(nil, p)
	head := resp.AppendCommand(nil, int64(len(header)+len(p.Data)), command...)
	if s.at.TTL > 0 {
		head = resp.AppendCommand(nil, int64(len(header)+len(p.Data)), "SETEX", key,
			strconv.Itoa(int(s.at.TTL.Seconds())))
	}
	if err := c.Send(append(head, header...), p.Data, []byte("\r\n")); err != nil {
		return false, err
	}
	r, err := c.Reply()
	if err == nil && r.Kind != resp.Status {
		err = r.Err()
	}
	return err == nil, err
}

// Clear forgets which pages are stored. The pages stay in the store, because other servers use them.
func (s *store) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.known)
}

func (s *store) Count() Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// Close stops writing immediately; queued pages are lost.
func (s *store) Close() error {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	<-s.stopped
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.idle {
		c.Close()
	}
	s.idle = nil
	return nil
}
