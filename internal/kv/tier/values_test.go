package tier

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sparrow/internal/kv/prefix"
	"sparrow/internal/kv/tier/resp"
	"sparrow/internal/testkit/await"
	"sparrow/internal/testkit/respserver"
)

// Invariants of this file: counters, the order of use and pauses are exact.

// Reading a page of a disk counts as a use: the page that was not read for the longest time is dropped first, and sizes
// include headers.
func TestADiskKeepsWhatWasReadLast(t *testing.T) {
	s := openStack(t, Options{DiskDir: t.TempDir(), DiskBytes: int64(3 * spec.Size())}, spec)
	a, b := chain(s, 1, 3), chain(s, 2, 1)
	ka, kb := keysOf(a), keysOf(b)
	keep(t, s, a, Stored)
	if n, why := bring(t, s, ka[:1], rows(1, 1000)); n != 1 {
		t.Fatal(why)
	}
	keep(t, s, b, Stored)
	if !s.Has(ka[0]) || s.Has(ka[1]) || !s.Has(ka[2]) || !s.Has(kb[0]) {
		t.Errorf("Has is %v, %v, %v and %v", s.Has(ka[0]), s.Has(ka[1]), s.Has(ka[2]), s.Has(kb[0]))
	}
	c := s.Counts()[0]
	if c.Pages != 3 || c.Bytes != int64(3*spec.Size()) || c.Hits != 1 || c.HitBytes != 1000 || c.Stored != 4 ||
		c.Evicted != 1 || c.Dropped != 0 || c.Failed != 0 || c.Damaged != 0 || c.Tier != "disk" {
		t.Errorf("%+v", c)
	}
}

// If the device evicts a page that host memory already holds, this counts as a use of the page, although nothing is
// copied.
func TestAPageThatLeavesAgainIsUsed(t *testing.T) {
	s := openStack(t, Options{HostBytes: 2000}, spec)
	a, b := chain(s, 1, 2), chain(s, 2, 1)
	ka, kb := keysOf(a), keysOf(b)
	keep(t, s, a, Leaving)
	if s.Wants(ka[0], Leaving) {
		t.Error("the tier wants a page that it already has")
	}
	keep(t, s, b, Leaving)
	if !s.Has(ka[0]) || s.Has(ka[1]) || !s.Has(kb[0]) {
		t.Errorf("Has is %v, %v and %v", s.Has(ka[0]), s.Has(ka[1]), s.Has(kb[0]))
	}
	if n, why := bring(t, s, ka[:1], rows(1, 1000)); n != 1 {
		t.Fatal(why)
	}
	if c := s.Counts()[0]; c.Hits != 1 || c.HitBytes != 1000 || c.Bytes != 2000 {
		t.Errorf("%+v", c)
	}
}

// A store that fails is paused for twice as long each time, up to a limit; one success ends the pause. Pages that the
// store already has are not written again.
func TestThePauseOfAStore(t *testing.T) {
	s := newStore("store", resp.Address{}, time.Hour, func() *Spec { return &paged }, quiet)
	defer s.stop()
	k := prefix.Hash{1}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		begun := time.Now()
		s.failed(errors.New("no answer"))
		if s.pause != want*time.Second || s.down.Sub(begun) < s.pause || s.count.Failed != int64(i+1) {
			t.Errorf("failure %d: the pause is %v and ends after %v, want %v s", i+1, s.pause, s.down.Sub(begun), want)
		}
		if s.Has(k) || s.Wants(k, Stored) {
			t.Error("the store is used during its pause")
		}
	}
	s.down = time.Now().Add(-time.Second)
	if !s.Has(k) || s.Has(k) {
		t.Error("after a pause exactly one caller must try the store")
	}
	s.answered()
	for range 2 { // every caller gets the error, not only the first caller
		if !s.Has(k) {
			t.Error("the store works but is not asked")
		}
	}
	if !s.Wants(k, Stored) || s.Wants(k, Leaving) {
		t.Error("the store works but is not used")
	}
	if s.hit(k); s.Wants(k, Stored) || s.count.Hits != 1 || s.count.HitBytes != int64(paged.Bytes) {
		t.Errorf("a page that was found in the store was written again: counters %+v", s.count)
	}
	if s.damaged(k); !s.Wants(k, Stored) || s.count.Damaged != 1 {
		t.Errorf("a damaged page was not written again: counters %+v", s.count)
	}
	s.hit(k)
	if s.forget(k); !s.Wants(k, Stored) {
		t.Error("a page that the store no longer has was not written again")
	}
	s.hit(k)
	if s.Clear(); !s.Wants(k, Stored) {
		t.Error("a page from before Clear counts as stored")
	}
}

// The counters of all peers are summed field by field.
func TestCountersOfPeersAreSums(t *testing.T) {
	s := openStack(t, Options{Pull: true}, spec)
	s.stopped("peer", "gone")
	for i, name := range []string{"a", "b"} {
		p := newStore("peer", resp.Address{}, time.Hour, s.outside, quiet)
		n := int64(1 + i)
		p.count = Count{Hits: n, HitBytes: 10 * n, Damaged: 100 * n, Failed: 1000 * n, Busy: time.Duration(10000 * n)}
		close(p.stopped)
		if s.peers == nil {
			s.peers = map[string]*store{}
		}
		s.peers[name] = p
	}
	c := s.PeerCount()
	if c.Tier != "peer" || c.Hits != 3 || c.HitBytes != 30 || c.Damaged != 300 || c.Failed != 3000 || c.Busy != 30000 ||
		len(c.Stops) != 1 || c.Stops["gone"] != 1 {
		t.Errorf("%+v", c)
	}
}

// scarce is an allocator that succeeds only once.
type scarce struct {
	plain
	given int
}

func (s *scarce) Take(n int) ([]byte, error) {
	if s.given++; s.given > 1 {
		return nil, errors.New("no more")
	}
	return s.plain.Take(n)
}

// If an allocation fails, the allocator is not called again.
func TestMemoryThatIsNotThere(t *testing.T) {
	from := &scarce{}
	m := &memory{from: from, each: slabBytes / 2, most: 100}
	var pages []*Page
	for range 5 {
		if p := m.take(); p != nil {
			pages = append(pages, p)
		}
	}
	if len(pages) != 2 || from.given != 2 || m.most != 2 || m.inUse() != 2 {
		t.Errorf("%d pages, %d calls of the allocator, maximum of %d pages, %d in use", len(pages), from.given, m.most,
			m.inUse())
	}
	pages[0].Drop()
	if p := m.take(); p == nil {
		t.Error("a released page was not allocated again")
	} else {
		p.Drop()
	}
	pages[1].Drop()
	if err := m.close(); err != nil || m.made != 0 {
		t.Errorf("error %v, %d pages are left", err, m.made)
	}
}

// A stack remembers at most maxPeers other engines. One more engine replaces all remembered engines.
func TestPeersAreForgottenWhereThereAreTooMany(t *testing.T) {
	s := openStack(t, Options{Pull: true}, spec)
	for i := range maxPeers {
		s.peer(fmt.Sprintf("10.0.0.1:%d", i))
	}
	first := s.peer("10.0.0.1:0")
	if len(s.peers) != maxPeers || s.peer("10.0.0.1:0") != first {
		t.Errorf("%d engines are remembered, want %d", len(s.peers), maxPeers)
	}
	if s.peer("10.0.0.2:0"); len(s.peers) != 1 {
		t.Errorf("%d engines are remembered after one more, want only that engine", len(s.peers))
	}
}

// If a page cannot be written, no file remains and the tier does not have the page. The next page is written.
func TestAFileThatIsNotWrittenIsRemoved(t *testing.T) {
	dir := t.TempDir()
	s := openStack(t, Options{DiskDir: dir, DiskBytes: int64(8 * spec.Size())}, spec)
	list := chain(s, 1, 2)
	keys := keysOf(list)
	// A folder that is not empty has the name of the first page's file, so that renaming fails.
	if err := os.MkdirAll(filepath.Join(dir, keys[0].String()+pageSuffix, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	keep(t, s, list, Stored)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), unfinishedStart) {
			t.Errorf("%s was left behind", e.Name())
		}
	}
	c := s.Counts()[0]
	if s.Has(keys[0]) || !s.Has(keys[1]) || c.Failed != 1 || c.Stored != 1 || c.Pages != 1 {
		t.Errorf("Has is %v and %v; counters %+v", s.Has(keys[0]), s.Has(keys[1]), c)
	}
}

// A store keeps a bounded number of idle connections, and none after it was closed.
func TestKeptConnections(t *testing.T) {
	server := respserver.Start(t)
	at, err := resp.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	s := newStore("store", at, await.Hang, func() *Spec { return &paged }, quiet)
	close(s.stopped) // stops the writer
	var list []*resp.Conn
	for range storeIdle + 2 {
		c, kept, err := s.connect(t.Context(), false)
		if err != nil || kept {
			t.Fatal(kept, err)
		}
		list = append(list, c)
	}
	for _, c := range list {
		s.giveBack(c)
	}
	if len(s.idle) != storeIdle {
		t.Errorf("%d idle connections are kept, want %d", len(s.idle), storeIdle)
	}
	c, kept, err := s.connect(t.Context(), false)
	if err != nil || !kept || len(s.idle) != storeIdle-1 {
		t.Errorf("kept %v, error %v; %d idle connections are left", kept, err, len(s.idle))
	}
	if err := s.Close(); err != nil || len(s.idle) != 0 {
		t.Errorf("error %v; %d idle connections of a closed store are kept", err, len(s.idle))
	}
	if s.giveBack(c); len(s.idle) != 0 {
		t.Error("a closed store kept a connection")
	}
	if _, err := c.Do("PING"); err == nil {
		t.Error("the connection was not closed")
	}
}

// Pages expire in the store if its URL sets a time, after as many whole seconds; another server finds them until then.
func TestPagesOfAStoreExpire(t *testing.T) {
	for query, seconds := range map[string]string{"": "", "?ttl=90s": "90", "?ttl=1h30m": "5400", "?ttl=2500ms": "2"} {
		server := respserver.Start(t)
		first := openStack(t, Options{StoreURL: server.URL() + query}, spec)
		const pages = 64 // fewer are not fetched from a store
		list := chain(first, 3, pages)
		keys := keysOf(list)
		keep(t, first, list, Stored)
		expiring := 0
		if seconds != "" {
			expiring = server.Len()
		}
		if got := server.Expiring(seconds); server.Len() != pages || got != expiring {
			t.Errorf("%q: %d pages are stored, %d of them expire after %s s", query, server.Len(), got, seconds)
		}
		second := openStack(t, Options{StoreURL: server.URL()}, spec)
		if n, why := bring(t, second, keys, rows(3, spec.Bytes)); n != pages {
			t.Errorf("%q: another server found %d of %d pages: %q", query, n, pages, why)
		}
	}
}

// A page has at least one token and one byte, at most as many bytes as a length field can state, and names of a bounded
// length.
func TestSpecsAreChecked(t *testing.T) {
	name := strings.Repeat("x", maxNameBytes)
	for _, c := range []struct {
		name   string
		change func(*Spec)
		ok     bool
	}{
		{"as it is", func(*Spec) {}, true},
		{"one token", func(s *Spec) { s.PageTokens = 1 }, true},
		{"no token", func(s *Spec) { s.PageTokens = 0 }, false},
		{"one byte", func(s *Spec) { s.Bytes = 1 }, true}, {"no byte", func(s *Spec) { s.Bytes = 0 }, false},
		{"as many bytes as are possible", func(s *Spec) { s.Bytes = math.MaxInt32 }, true},
		{"one byte more", func(s *Spec) { s.Bytes = math.MaxInt32 + 1 }, false},
		{"long names", func(s *Spec) { s.Model, s.Layout = name, name }, true},
		{"a model's name that is too long", func(s *Spec) { s.Model = name + "x" }, false},
		{"a layout's name that is too long", func(s *Spec) { s.Layout = name + "x" }, false},
	} {
		s := spec
		if c.change(&s); (s.Validate() == nil) != c.ok {
			t.Errorf("%s: error %v", c.name, s.Validate())
		}
	}
}

// A store may close idle connections. Then a new connection is used, and this is no failure of the store.
func TestAStoreMayCloseIdleConnections(t *testing.T) {
	server, s, stored := openOnStore(t)
	list := chain(s, 1, 64)
	keys := keysOf(list)
	for at := 0; at < len(list); at += 16 {
		keep(t, s, list[at:at+16], Stored)
		server.Set(respserver.Works) // closes the connections
	}
	for range 2 {
		if n, why := bring(t, s, keys, rows(1, paged.Bytes)); n != len(keys) || len(stored.idle) != 1 {
			t.Errorf("%d pages were fetched: %q; %d idle connections", n, why, len(stored.idle))
		}
		server.Set(respserver.Works)
	}
	if c := stored.Count(); c.Stored != 64 || c.Hits != 128 || c.Failed != 0 || c.Dropped != 0 {
		t.Errorf("%+v", c)
	}
}

// A connection is used again only if all replies were read from it: otherwise the next fetch would read replies that
// belong to the pages of another prompt.
func TestAConnectionWithUnreadRepliesIsClosed(t *testing.T) {
	server, s, stored := openOnStore(t)
	list := chain(s, 1, 64)
	keys := keysOf(list)
	keep(t, s, list, Stored)
	absent := make([]prefix.Hash, 64)
	for _, c := range []struct {
		name       string
		keys       []prefix.Hash
		mode       respserver.Mode
		want, idle int
	}{
		{"all pages", keys, respserver.Works, 64, 1},
		{"no page", absent, respserver.Works, 0, 1},
		{"some pages", append(slices.Clone(keys[:60]), absent[:20]...), respserver.Works, 60, 0},
		{"a damaged page", keys, respserver.Garbage, 0, 0},
		{"a page of another length", keys, respserver.Long, 0, 0},
	} {
		server.Set(c.mode)
		n, why := bring(t, s, c.keys, rows(1, paged.Bytes))
		if n != c.want || len(stored.idle) != c.idle {
			t.Errorf("%s: %d pages were fetched: %q; %d idle connections, want %d", c.name, n, why, len(stored.idle),
				c.idle)
		}
		server.Set(respserver.Works)
		if n, why := bring(t, s, keys, rows(1, paged.Bytes)); n != 64 {
			t.Errorf("after %s: %d pages were fetched: %q", c.name, n, why)
		}
	}
}

// Pages are stored in host memory before the device evicts them only if the options require it.
func TestHostMemoryKeepsPagesEarly(t *testing.T) {
	for _, early := range []bool{false, true} {
		s := openStack(t, Options{HostBytes: 3000, KeepEarly: early}, spec)
		list := chain(s, 1, 2)
		keys := keysOf(list)
		if s.Wants(keys[0], Stored) != early || !s.Wants(keys[0], Leaving) {
			t.Errorf("KeepEarly %v: Wants is %v and %v", early, s.Wants(keys[0], Stored), s.Wants(keys[0], Leaving))
		}
		keep(t, s, list, Stored)
		if s.Has(keys[0]) != early || s.Wants(keys[0], Leaving) == early {
			t.Errorf("KeepEarly %v: Has is %v", early, s.Has(keys[0]))
		}
	}
}

// If all host memory is in use, the least recently used page of the host tier makes room.
func TestHostMemoryMakesRoom(t *testing.T) {
	large := spec
	large.Bytes = 4 << 20 // few of these pages are all memory
	s := openStack(t, Options{HostBytes: 8 << 20}, large)
	list := chain(s, 1, 2)
	keys := keysOf(list)
	keep(t, s, list, Leaving)
	var held []*Page
	for range s.memory.most - 2 {
		held = append(held, s.Room())
	}
	for i := range keys {
		if held = append(held, s.Room()); held[len(held)-1] == nil || s.Has(keys[i]) {
			t.Errorf("page %d did not make room", i)
		}
	}
	if s.Room() != nil {
		t.Error("more memory was given than there is")
	}
	for _, p := range held {
		p.Drop()
	}
}

// What the tiers are and whether pages may leave the process follow from the options.
func TestOptionsSayWhichTiersThereAre(t *testing.T) {
	for _, c := range []struct {
		name       string
		o          Options
		any, leave bool
	}{
		{"none", Options{}, false, false},
		{"host", Options{HostBytes: 1}, true, false},
		{"disk", Options{DiskDir: "x"}, true, true},
		{"store", Options{StoreURL: "x"}, true, true},
		{"pull", Options{Pull: true}, true, true},
		{"serve", Options{HostBytes: 1, KeepEarly: true}, true, true},
	} {
		if c.o.Any() != c.any || c.o.Leave() != c.leave {
			t.Errorf("%s: Any is %v, Leave is %v", c.name, c.o.Any(), c.o.Leave())
		}
	}
}

// A page for which the queue of a store has no room is dropped and released; a page is queued at most once.
func TestTheQueueOfAStore(t *testing.T) {
	stack := openStack(t, Options{HostBytes: 100 * 5000}, paged)
	s := newStore("store", resp.Address{}, time.Hour, func() *Spec { return &paged }, quiet)
	list := chain(stack, 1, storeQueue+1)
	for range 2 {
		for _, p := range list {
			s.Put(p)
		}
	}
	if c := s.Count(); len(s.writes) != storeQueue || c.Dropped != 2 {
		t.Errorf("%d pages are queued, %+v", len(s.writes), c)
	}
	go s.write()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s.Put(list[0])
	for i, p := range list {
		if n := p.refs.Load(); n != 1 {
			t.Errorf("page %d has %d references after Close, want that of its owner", i, n)
		}
		p.Drop()
	}
}

// A store that is down or full gets no page, and the pages that were queued for it count as dropped.
func TestNothingIsWrittenDuringAPause(t *testing.T) {
	server, s, stored := openOnStore(t)
	for i, until := range []*time.Time{&stored.down, &stored.full} {
		p := chain(s, byte(i+1), 1)[0]
		stored.mu.Lock()
		*until = time.Now().Add(time.Hour)
		stored.mu.Unlock()
		p.Hold()
		stored.keep(p)
		if c := stored.Count(); server.Len() != 0 || c.Dropped != int64(i+1) || c.Stored != 0 {
			t.Errorf("%d pages were written, %+v", server.Len(), c)
		}
		stored.mu.Lock()
		*until = time.Time{}
		stored.mu.Unlock()
		p.Drop()
	}
}

// What a fetch learns about a store is used: a page that the store no longer has is written again, and an answer ends a
// pause.
func TestAFetchTellsWhatTheStoreHas(t *testing.T) {
	server, s, stored := openOnStore(t)
	list := chain(s, 1, 64)
	keys := keysOf(list)
	keep(t, s, list, Stored)
	stored.failed(errors.New("no answer"))
	if n, why := bring(t, s, keys, rows(1, paged.Bytes)); n != 64 || stored.pause != 0 || !stored.down.IsZero() {
		t.Errorf("%d pages were fetched: %q; the pause is %v", n, why, stored.pause)
	}
	server.Clear()
	if n, why := bring(t, s, keys, nil); n != 0 || !s.Wants(keys[0], Stored) || s.Wants(keys[1], Stored) {
		t.Errorf("%d pages were fetched: %q; Wants is %v and %v", n, why, s.Wants(keys[0], Stored),
			s.Wants(keys[1], Stored))
	}
}

// A store remembers at most 65,536 of its pages.
func TestAStoreRemembersABoundedNumberOfPages(t *testing.T) {
	s := newStore("store", resp.Address{}, time.Hour, func() *Spec { return &paged }, quiet)
	defer s.stop()
	for i := range 65536 + 1 {
		if n := len(s.known); n != i {
			t.Fatalf("%d pages are known after %d", n, i)
		}
		s.remember(prefix.Hash{byte(i), byte(i >> 8), byte(i >> 16)}, true)
	}
	if n := len(s.known); n != 1 {
		t.Errorf("%d pages are known after the limit was reached", n)
	}
}

// A store that accepts no pages is not written to for a while, but still read. A page that was written ends the pause
// after an error.
func TestAStoreThatIsFullIsStillRead(t *testing.T) {
	server, s, stored := openOnStore(t)
	list, other := chain(s, 1, 64), chain(s, 2, 1)
	keys := keysOf(list)
	stored.mu.Lock()
	stored.pause = time.Second // after an error, at the end of its pause
	stored.mu.Unlock()
	keep(t, s, list, Stored)
	if stored.pause != 0 || !stored.Has(keys[0]) {
		t.Errorf("the pause is %v after pages were written", stored.pause)
	}
	server.Set(respserver.Full)
	keep(t, s, other, Stored)
	if c := stored.Count(); server.Len() != 64 || c.Failed != 1 || s.Wants(prefix.Hash{9}, Stored) {
		t.Errorf("%d pages are in the store, %+v, another page is wanted: %v", server.Len(), c,
			s.Wants(prefix.Hash{9}, Stored))
	}
	if n, why := bring(t, s, keys, rows(1, paged.Bytes)); n != 64 {
		t.Errorf("%d pages were fetched: %q", n, why)
	}
}
