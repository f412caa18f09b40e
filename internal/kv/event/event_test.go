package event

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sparrow/internal/kv/event/zmtp"
	"sparrow/internal/kv/prefix"
	"sparrow/internal/testkit/await"
)

// cache is an index that changes at random and reports its changes to a publisher.
type cache struct {
	t      testing.TB
	index  *prefix.Index
	random *rand.Rand
	pages  int
}

const testTokens = 4

func newCache(t testing.TB, pages int, seed uint64, l prefix.Listener) *cache {
	t.Helper()
	ix, err := prefix.New(prefix.Config{Pages: pages, PageTokens: testTokens, Identity: "test", Listener: l})
	if err != nil {
		t.Fatal(err)
	}
	c := &cache{t: t, index: ix, random: rand.New(rand.NewPCG(seed, 1)), pages: pages}
	return c
}

// store makes a prompt of a few pages reusable and releases it. If no page is free, it evicts other pages.
func (c *cache) store() {
	root := c.index.Root(nil)
	prompt := c.tokens()
	found, _ := c.index.Lookup(root, prompt, 0, nil)
	parent := prefix.None
	var table []prefix.Page
	for _, p := range found {
		c.index.Hold(prefix.Page(p))
		parent = prefix.Page(p)
		table = append(table, parent)
	}
	for at := len(found) * testTokens; at+testTokens <= len(prompt); at += testTokens {
		page := c.free()
		if page == prefix.None {
			break
		}
		c.index.Add(root, parent, page, prompt[at:at+testTokens])
		parent = page
		table = append(table, page)
	}
	for i := len(table) - 1; i >= 0; i-- {
		c.index.Drop(table[i])
	}
}

// tokens returns the tokens of one of a few prompts, so that prefixes are shared.
func (c *cache) tokens() []int32 {
	n := testTokens * (1 + c.random.IntN(8))
	prompt := make([]int32, n)
	for i := range prompt {
		prompt[i] = int32(c.random.IntN(2))
		if i > 2*testTokens {
			prompt[i] *= 70_000
		}
	}
	return prompt
}

func (c *cache) free() prefix.Page {
	for p := range c.pages {
		if !c.index.Has(prefix.Page(p)) {
			return prefix.Page(p)
		}
	}
	page, ok := c.index.Evict()
	if !ok {
		return prefix.None
	}
	return page
}

func (c *cache) step() {
	switch n := c.random.IntN(100); {
	case n < 80:
		c.store()
	case n < 99:
		c.index.Evict()
	default:
		c.index.Clear(nil)
	}
}

// count returns how many pages are stored.
func (c *cache) count() (n int) {
	for p := range c.pages {
		if c.index.Has(prefix.Page(p)) {
			n++
		}
	}
	return n
}

// check returns an error unless the reader has exactly the pages of the cache.
func (c *cache) check(r *reader) error {
	if len(r.pages) != c.count() {
		return fmt.Errorf("the reader has %d pages, the cache %d pages", len(r.pages), c.count())
	}
	for range 50 {
		prompt := c.tokens()
		_, m := c.index.Lookup(c.index.Root(nil), prompt, 0, nil)
		at, matched := uint64(0), 0
		for i := 0; i < len(prompt); i += testTokens {
			found := false
			for _, p := range r.pages {
				if p.first == (i == 0) && (i == 0 || p.parent == at) &&
					slices.Equal(p.tokens, prompt[i:i+testTokens]) {
					at, found = p.id, true
					break
				}
			}
			if !found {
				break
			}
			matched += testTokens
		}
		if matched != m.Tokens {
			return fmt.Errorf("the reader matches %d tokens, the cache %v", matched, m)
		}
	}
	return nil
}

func TestBatchesTellTheWholeCache(t *testing.T) {
	q, known, r := newQueue(nil), newState(), &reader{pages: map[place]page{}}
	c := newCache(t, 60, 1, listener{q, GPU})
	var out encoder
	var list []change
	for i := range 1500 {
		c.step()
		if c.random.IntN(5) > 0 {
			continue
		}
		list = q.take(list)
		known.apply(list, &out)
		if b := out.batch(time.Unix(int64(i), 0)); b != nil {
			if err := r.apply(b); err != nil {
				t.Fatal(err)
			}
		}
		if i%100 == 0 {
			late := &reader{pages: map[place]page{}}
			known.whole(&out)
			if err := late.apply(out.batch(time.Now())); err != nil || !reflect.DeepEqual(late.pages, r.pages) {
				t.Fatalf("the whole state differs from its changes: %v", err)
			}
		}
	}
	known.apply(q.take(nil), &out)
	if b := out.batch(time.Now()); b != nil {
		if err := r.apply(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.check(r); err != nil {
		t.Fatal(err)
	}
}

// A queue that is never read is bounded by the size of the cache, and its contents stay correct.
func TestAQueueThatNobodyEmptiesIsBounded(t *testing.T) {
	q := newQueue(nil)
	c := newCache(t, 100, 2, listener{q, GPU})
	for range 5_000 {
		c.store()
		if n := len(q.list); n > minQueue+400 {
			t.Fatalf("%d changes", n)
		}
	}
	r, out := &reader{pages: map[place]page{}}, encoder{}
	newState().apply(q.take(nil), &out)
	if err := r.apply(out.batch(time.Now())); err != nil {
		t.Fatal(err)
	}
	if err := c.check(r); err != nil {
		t.Fatal(err)
	}
}

func TestTiersAndSaltsAreTold(t *testing.T) {
	q, known, r := newQueue(nil), newState(), &reader{pages: map[place]page{}}
	var out encoder
	tell := func() map[place]page {
		t.Helper()
		known.apply(q.take(nil), &out)
		if b := out.batch(time.Now()); b != nil {
			if err := r.apply(b); err != nil {
				t.Fatal(err)
			}
		}
		return r.pages
	}
	root, a, b := prefix.Hash{0}, prefix.Hash{31: 1}, prefix.Hash{31: 2}
	gpu, cpu, disk := listener{q, GPU}, listener{q, CPU}, listener{q, Storage}
	for _, l := range []listener{gpu, cpu, disk} {
		var salt []byte
		if l == gpu { // salts are not known in the other tiers
			salt = []byte("s\xff")
		}
		l.Stored(prefix.Stored{Hash: a, Parent: root, Root: root, Salt: salt, Tokens: []int32{1, 2}})
		l.Stored(prefix.Stored{Hash: b, Parent: a, Root: root, Salt: salt, Tokens: []int32{1 << 20, 300}})
	}
	if got := tell(); len(got) != 6 || got[place{CPU, 2}].salt != "s\uFFFD" || got[place{Storage, 2}].parent != 1 {
		t.Fatalf("%v", got)
	}
	// The salt of a root becomes known only with a page of the device: before that, pages of the root in other tiers
	// are not published.
	cpu.Stored(prefix.Stored{Hash: prefix.Hash{31: 7}, Parent: prefix.Hash{31: 6}, Root: prefix.Hash{31: 6},
		Tokens: []int32{1, 2}})
	// The root of prompts without a salt is known from the start.
	gpu.Root(prefix.Hash{31: 8})
	cpu.Stored(prefix.Stored{Hash: prefix.Hash{31: 9}, Parent: prefix.Hash{31: 8}, Root: prefix.Hash{31: 8},
		Tokens: []int32{1, 2}})
	if got := tell(); len(got) != 7 || got[place{CPU, 9}].salt != "" {
		t.Fatalf("%v", got)
	}
	cpu.Removed(prefix.Hash{31: 9})
	gpu.Cleared()
	if got := tell(); len(got) != 4 {
		t.Fatalf("pages after the removal, want those of the other tiers: %v", got)
	}
	cpu.Removed(b)
	cpu.Removed(prefix.Hash{31: 3}) // this page was never stored, so nothing is published
	disk.Cleared()
	if _, left := tell()[place{CPU, 1}]; !left || len(r.pages) != 1 {
		t.Fatalf("pages after the other tiers were cleared, want the only page of the host: %v", r.pages)
	}
	cpu.Removed(a)
	if got := tell(); len(got) != 0 {
		t.Fatalf("%v", got)
	}
	gpu.Stored(prefix.Stored{Hash: a, Parent: root, Root: root, Tokens: []int32{1, 2}})
	gpu.Cleared()
	if got := tell(); len(got) != 0 {
		t.Fatalf("%v", got)
	}
}

func TestEncodingOfNumbersAndTexts(t *testing.T) {
	for _, n := range []uint64{0, 127, 128, 255, 256, 65535, 65536, 1<<32 - 1, 1 << 32, 1<<64 - 1} {
		if v, rest, err := unpack(appendUint(nil, n)); v != n || len(rest) > 0 || err != nil {
			t.Errorf("%d reads as %v, %v", n, v, err)
		}
	}
	for _, n := range []int{0, 31, 32, 255, 256, 65535, 65536} {
		s := strings.Repeat("x", n)
		if v, rest, err := unpack(appendText(nil, s)); v != s || len(rest) > 0 || err != nil {
			t.Errorf("a text of %d bytes: %v", n, err)
		}
		b := append(appendArray(nil, n), make([]byte, n)...)
		if v, rest, err := unpack(b); err != nil || len(v.([]any)) != n || len(rest) > 0 {
			t.Errorf("an array of %d: %v", n, err)
		}
	}
}

// open returns a publisher on free ports.
func open(t *testing.T) *Publisher {
	t.Helper()
	p, err := New(Config{Endpoint: "tcp://127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	// The pages that tests store in other tiers belong to this root without a salt.
	p.Listener(GPU).(listener).Root(prefix.Hash{})
	return p
}

// dial connects to a publisher as a peer with the given configuration.
func dial(t *testing.T, to net.Addr, as zmtp.Config) (*zmtp.Conn, net.Conn) {
	t.Helper()
	c, err := net.Dial("tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(await.Hang))
	z, err := zmtp.Open(c, as)
	if err != nil {
		t.Fatal(err)
	}
	return z, c
}

var (
	asSubscriber = zmtp.Config{Socket: zmtp.SUB, Peers: []zmtp.Socket{zmtp.PUB}, MaxFrame: 1 << 26}
	asDealer     = zmtp.Config{Socket: zmtp.DEALER, Peers: []zmtp.Socket{zmtp.ROUTER}, MaxFrame: 1 << 26}
)

// follower is a subscriber that requests replays, as a router does.
type follower struct {
	t      *testing.T
	sub    *zmtp.Conn
	dealer *zmtp.Conn
	conn   net.Conn
	reader reader
	last   uint64
	gaps   int
	lose   func() bool // reports whether the next live frame is lost
}

func follow(t *testing.T, p *Publisher) *follower {
	t.Helper()
	f := &follower{t: t, reader: reader{pages: map[place]page{}}}
	f.join(p)
	return f
}

func (f *follower) join(p *Publisher) {
	f.t.Helper()
	f.sub, f.conn = dial(f.t, p.Addr(), asSubscriber)
	f.dealer, _ = dial(f.t, p.ReplayAddr(), asDealer)
	if err := f.sub.Write([]byte("\x01kv@")); err != nil {
		f.t.Fatal(err)
	}
}

// next reads one live frame; on a gap it requests a replay first.
func (f *follower) next() error {
	m, err := f.sub.Read()
	if err != nil {
		return err
	}
	if len(m) != 3 || string(m[0]) != "kv@here@m" || len(m[1]) != 8 {
		return fmt.Errorf("a message has %d frames and topic %q", len(m), m[0])
	}
	seq := binary.BigEndian.Uint64(m[1])
	if f.lose != nil && f.lose() {
		return nil
	}
	if seq > f.last+1 {
		f.gaps++
		if err := f.replay(f.last + 1); err != nil {
			return err
		}
	}
	if seq <= f.last {
		return nil
	}
	f.last = seq
	return f.reader.apply(m[2])
}

func (f *follower) replay(from uint64) error {
	if err := f.dealer.Write(nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return err
	}
	for {
		m, err := f.dealer.Read()
		if err != nil {
			return err
		}
		if len(m) != 4 || len(m[0]) != 0 || string(m[1]) != "kv@here@m" {
			return fmt.Errorf("a replay message has %d frames", len(m))
		}
		if len(m[3]) == 0 {
			if !bytes.Equal(m[2], endOfReplay) {
				return fmt.Errorf("the last message of a replay has number %x", m[2])
			}
			return nil
		}
		seq := binary.BigEndian.Uint64(m[2])
		if seq < from {
			return fmt.Errorf("requested a replay from %d, got a batch with number %d", from, seq)
		}
		f.last = seq
		if err := f.reader.apply(m[3]); err != nil {
			return err
		}
	}
}

// settle reads until the follower has received everything that was published.
func (f *follower) settle(p *Publisher, c *cache) {
	f.t.Helper()
	c.store()
	c.index.Clear(nil) // forces a batch even if nothing was stored
	c.store()
	marker := prefix.Hash{31: byte(c.random.Uint32()), 30: byte(c.random.Uint32()), 29: 1}
	p.Listener(Storage).Stored(prefix.Stored{Hash: marker, Tokens: make([]int32, testTokens)})
	at := place{Storage, shortHash(&marker)}
	for {
		if err := f.next(); err != nil {
			f.t.Fatal(err)
		}
		if _, ok := f.reader.pages[at]; ok {
			break
		}
	}
	delete(f.reader.pages, at)
	if err := c.check(&f.reader); err != nil {
		f.t.Fatal(err)
	}
	f.reader.pages[at] = page{}
	p.Listener(Storage).Removed(marker)
}

// A subscriber that loses frames, connects late or again, or notices a restart of the server has the same pages as the
// cache.
func TestAReaderThatLosesFramesKnowsTheCache(t *testing.T) {
	p := open(t)
	c := newCache(t, 50, 3, p.Listener(GPU))
	for range 200 {
		c.step() // no subscriber listens yet
	}
	p.Run(Topic("here", "m"))
	f := follow(t, p)
	f.lose = func() bool { return c.random.IntN(4) == 0 }
	for range 30 {
		for range 20 {
			c.step()
		}
		if err := f.next(); err != nil {
			t.Fatal(err)
		}
	}
	f.lose = nil
	f.settle(p, c)
	if f.gaps == 0 {
		t.Error("no frame was lost, so the test checks nothing")
	}
	f.conn.Close()
	for range 100 {
		c.step()
	}
	f.join(p)
	f.settle(p, c)

	// The server is restarted; its sequence numbers are higher than before.
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = open(t)
	c = newCache(t, 50, 4, p.Listener(GPU))
	p.Run(Topic("here", "m"))
	before := f.last
	f.join(p)
	c.store()
	f.settle(p, c)
	if f.last <= before {
		t.Errorf("sequence numbers went from %d to %d after a restart", before, f.last)
	}
}

func TestAReplayOlderThanWhatIsKeptIsTheWholeState(t *testing.T) {
	var h history
	for i := range uint64(maxKept + 5) {
		h.add(frame{i, []byte{1}})
	}
	if h.oldest() != 5 || len(h.since(0)) != maxKept || len(h.since(maxKept)) != 5 || len(h.since(1<<40)) != 0 {
		t.Errorf("the oldest number is %d; %d batches since 0, %d since maxKept", h.oldest(), len(h.since(0)),
			len(h.since(maxKept)))
	}
	h = history{}
	for i := range uint64(4) {
		h.add(frame{i, make([]byte, maxKeptBytes/2)})
	}
	if len(h.frames) != 2 {
		t.Errorf("%d frames of half the maximum size are kept", len(h.frames))
	}
	p := open(t)
	c := newCache(t, 50, 5, p.Listener(GPU))
	c.store()
	p.Run(Topic("here", "m"))
	f := &follower{t: t, reader: reader{pages: map[place]page{}}}
	f.dealer, _ = dial(t, p.ReplayAddr(), asDealer)
	for c.check(&f.reader) != nil { // waits until the first batch is published
		if err := f.replay(0); err != nil {
			t.Fatal(err)
		}
	}
	if s := p.Stats(); s.Snapshots == 0 {
		t.Errorf("%+v", s)
	}
	if err := f.replay(f.last + 1); err != nil || p.Stats().Replays != 1 {
		t.Errorf("%v, %+v", err, p.Stats())
	}
}

// The state that a new subscriber gets is counted as a snapshot, not as a replay.
func TestJoinsAreCountedAsSnapshots(t *testing.T) {
	p := open(t)
	newCache(t, 50, 5, p.Listener(GPU)).store()
	p.Run(Topic("here", "m"))
	for n := range int64(3) {
		follow(t, p)
		await.True(t, "the state was sent", func() bool { s := p.Stats(); return s.Snapshots+s.Replays > n })
		if s := p.Stats(); s.Snapshots != n+1 || s.Replays != 0 || int64(s.Subscribers) != n+1 {
			t.Errorf("after %d joins: counters %+v", n+1, s)
		}
	}
}

// A subscriber that never reads loses frames; the cache and other subscribers are not affected.
func TestASlowSubscriberCostsOnlyItself(t *testing.T) {
	p := open(t)
	p.length = 16
	c := newCache(t, 40, 6, p.Listener(GPU))
	p.Run(Topic("here", "m"))
	slow := follow(t, p)
	big := prefix.Stored{Tokens: make([]int32, 2048)}
	await.True(t, "frames are dropped", func() bool {
		for range 20 { // these changes would block if they waited for the subscriber
			p.Listener(CPU).Stored(big)
			p.Listener(CPU).Removed(big.Hash)
			time.Sleep(50 * time.Microsecond)
		}
		return p.Stats().Dropped > 0
	})
	fast := follow(t, p)
	fast.settle(p, c)
	// The slow subscriber continues, notices the gap and requests the missing batches.
	slow.settle(p, c)
	if slow.gaps == 0 {
		t.Error("the slow subscriber saw no gap")
	}
}

func TestOthersAreRefused(t *testing.T) {
	p := open(t)
	p.Run(Topic("here", "m"))
	for _, to := range []net.Addr{p.Addr(), p.ReplayAddr()} {
		c, err := net.Dial("tcp", to.String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "GET / HTTP/1.1\r\n"+strings.Repeat("x", 100))
		c.SetReadDeadline(time.Now().Add(await.Hang))
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("the connection is not closed: %v", err)
		}
		c.Close()
	}
	d, conn := dial(t, p.ReplayAddr(), asDealer)
	// Requests with a number that is too short, a missing delimiter or an additional frame are not answered, and the
	// connection stays open.
	for _, m := range [][][]byte{{{}, {1}}, {{1}, make([]byte, 8)}, {make([]byte, 8)}, {{}, make([]byte, 8), {}}} {
		if err := d.Write(m...); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Write(nil, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if m, err := d.Read(); err != nil || len(m) != 4 {
		t.Errorf("got %d frames, error %v", len(m), err)
	}
	conn.Close()
	if s := p.Stats(); s.Refused != 6 {
		t.Errorf("%+v", s)
	}
	for _, bad := range []string{"", "5557", "tcp://*", "tcp://:1", "ipc://x", "tcp://*:70000", "tcp://*:x"} {
		if _, err := New(Config{Endpoint: bad}); err == nil || !strings.Contains(err.Error(), "want tcp://") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := New(Config{Endpoint: "tcp://" + p.Addr().String()}); err == nil {
		t.Error("New accepted a port that is already in use")
	}
}

// The publisher continues to run, whatever bytes subscribers send.
func FuzzSubscription(f *testing.F) {
	f.Add([]byte("\x01kv@"), []byte("\x00kv@"))
	f.Add([]byte{}, []byte{2})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		s := newPeer(nil, 1)
		topic := []byte("kv@here@m")
		joined := s.filter(topic, [][]byte{a})
		if joined != s.wants(topic) {
			t.Fatal("the peer joined without a subscription, or subscribed without joining")
		}
		s.filter(topic, [][]byte{b})
		s.filter(topic, [][]byte{a, b})
	})
}

// BenchmarkStored measures the cost of a page for the engine's goroutine.
func BenchmarkStored(b *testing.B) {
	q := newQueue(nil)
	l := listener{q, GPU}
	s := prefix.Stored{Tokens: make([]int32, 64)}
	b.ReportAllocs()
	for i := range b.N {
		binary.BigEndian.PutUint64(s.Hash[24:], uint64(i))
		l.Stored(s)
		l.Removed(s.Hash)
	}
}
