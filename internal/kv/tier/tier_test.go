package tier

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"sparrow/internal/kv/prefix"
	"sparrow/internal/testkit/await"
	"sparrow/internal/testkit/respserver"
)

// Invariants of this file: a tier returns the requested page without any changed byte, or no page. Whatever the disk or
// the store does, no call waits longer than its limit, and all host memory is released.

var spec = Spec{Model: "test", Weights: Fingerprint{1, 2, 3}, Whole: true, Layout: "bf16+f32/4", PageTokens: 4,
	Bytes: 1000}

var quiet = slog.New(slog.DiscardHandler)

// chain returns n pages of one prompt, with their rows filled in.
func chain(s *Stack, seed byte, n int) []*Page {
	var list []*Page
	parent := prefix.Hash{seed}
	for i := range n {
		p := s.Room()
		p.Root, p.Parent, p.Tokens = prefix.Hash{seed}, parent, []int32{int32(seed), int32(i), 3, 4}
		p.Hash = prefix.PageHash(parent, p.Tokens)
		for j := range p.Data {
			p.Data[j] = byte(j*7+i) ^ seed
		}
		parent = p.Hash
		list = append(list, p)
	}
	return list
}

func keysOf(list []*Page) []prefix.Hash {
	var keys []prefix.Hash
	for _, p := range list {
		keys = append(keys, p.Hash)
	}
	return keys
}

// openOnStore starts a page store and opens a stack that has only this store.
func openOnStore(t *testing.T) (*respserver.Server, *Stack, *store) {
	t.Helper()
	server := respserver.Start(t)
	s := openStack(t, Options{StoreURL: server.URL()}, paged)
	return server, s, s.tiers[0].(*store)
}

// openStack opens a stack and checks, when the test ends, that no page is in use.
func openStack(t *testing.T, o Options, s Spec) *Stack {
	t.Helper()
	if o.Wait == 0 {
		o.Wait = await.Hang
	}
	stack, err := Open(o, s, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, each := range stack.tiers {
		if d, ok := each.(*disk); ok {
			d.patience = await.Hang
		}
	}
	t.Cleanup(func() { closeStack(t, stack) })
	return stack
}

func closeStack(t *testing.T, s *Stack) {
	t.Helper()
	if s.ctx.Err() != nil {
		return
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if pages, fetches := s.Held(); pages != 0 || fetches != 0 {
		t.Errorf("%d pages and %d fetches were not released", pages, fetches)
	}
}

// keep stores pages in a stack and waits until they are written.
func keep(t *testing.T, s *Stack, list []*Page, on ...Occasion) {
	t.Helper()
	for _, p := range list {
		s.Keep(p, on...)
	}
	for _, p := range list {
		await.True(t, "pages are written", func() bool {
			hosted := int32(0)
			if s.host.Has(p.Hash) {
				hosted = 1
			}
			return p.refs.Load() <= hosted
		})
	}
}

// bring fetches pages, compares them with the expected rows, and returns how many arrived and why the fetch stopped.
func bring(t *testing.T, s *Stack, keys []prefix.Hash, want func(i int) []byte) (n int, why string) {
	t.Helper()
	woken := make(chan struct{}, 1)
	f := s.Fetch(keys, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	defer f.Close()
	for {
		p, _, ended := f.Next()
		switch {
		case p != nil:
			if p.Hash != keys[n] || !bytes.Equal(p.Data, want(n)) {
				t.Errorf("page %d has wrong contents", n)
			}
			p.Drop()
			n++
		case ended:
			return n, f.Why()
		default:
			<-woken
		}
	}
}

// rows returns a function that returns the rows of page i of a chain.
func rows(seed byte, each int) func(i int) []byte {
	return func(i int) []byte {
		b := make([]byte, each)
		for j := range b {
			b[j] = byte(j*7+i) ^ seed
		}
		return b
	}
}

func TestAPageIsRecognisedByEveryByte(t *testing.T) {
	s := openStack(t, Options{HostBytes: 1 << 20}, spec)
	list := chain(s, 9, 2)
	list[0].Drop()
	p := list[1]
	whole := append(spec.AppendHeader(nil, p), p.Data...)
	if len(whole) != spec.Size() {
		t.Fatalf("the page has %d bytes, want %d", len(whole), spec.Size())
	}
	into := s.Room()
	read := func(b []byte) error { return spec.read(into, p.Hash, bytes.NewReader(b), int64(len(b))) }
	if err := read(whole); err != nil || !bytes.Equal(into.Data, p.Data) || !slices.Equal(into.Tokens, p.Tokens) ||
		into.Parent != p.Parent || into.Root != p.Root {
		t.Fatalf("an unchanged page: error %v", err)
	}
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 1
		if err := read(b); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrOther) {
			t.Fatalf("byte %d was changed: error %v", i, err)
		}
	}
	for _, n := range []int{0, 1, atText, spec.HeaderBytes(), len(whole) - 1} {
		if err := read(whole[:n]); err == nil {
			t.Errorf("the first %d bytes are accepted as a page", n)
		}
	}
	for name, other := range map[string]Spec{
		"model":   {Model: "tesT", Weights: spec.Weights, Layout: spec.Layout, PageTokens: 4, Bytes: 1000},
		"layout":  {Model: spec.Model, Weights: spec.Weights, Layout: "bf16+f32/8", PageTokens: 4, Bytes: 1000},
		"weights": {Model: spec.Model, Layout: spec.Layout, PageTokens: 4, Bytes: 1000},
		"bytes":   {Model: spec.Model, Weights: spec.Weights, Layout: spec.Layout, PageTokens: 4, Bytes: 1001},
		"tokens":  {Model: spec.Model, Weights: spec.Weights, Layout: spec.Layout, PageTokens: 5, Bytes: 996},
	} {
		if _, err := other.CheckHeader(whole, int64(len(whole))); !errors.Is(err, ErrOther) {
			t.Errorf("another %s: error %v", name, err)
		}
	}
	into.Drop()
	p.Drop()
}

func TestHostMemoryKeepsWhatWasUsedLast(t *testing.T) {
	s := openStack(t, Options{HostBytes: 3000}, spec)
	a, b := chain(s, 1, 2), chain(s, 2, 2)
	ka, kb := keysOf(a), keysOf(b)
	if s.Wants(ka[0], Stored) || !s.Wants(ka[0], Leaving) {
		t.Error("host memory must want pages only when the device evicts them")
	}
	keep(t, s, a, Leaving)
	keep(t, s, b[:1], Leaving)
	// Uses prompt a again, so that prompt b is the least recently used.
	if n, _ := bring(t, s, ka, rows(1, 1000)); n != 2 {
		t.Errorf("%d pages were fetched", n)
	}
	keep(t, s, b[1:], Leaving)
	if s.Has(kb[0]) || !s.Has(ka[0]) || !s.Has(kb[1]) {
		t.Error("the least recently used page was not evicted")
	}
	if n, why := bring(t, s, kb, rows(2, 1000)); n != 0 || why != "host: not held" {
		t.Errorf("%d pages were fetched: %q", n, why)
	}
	if c := s.Counts()[0]; c.Pages != 3 || c.Bytes != 3000 || c.Stored != 4 || c.Evicted != 1 || c.Hits != 2 {
		t.Errorf("%+v", c)
	}
	s.Clear()
	if pages, _ := s.Held(); pages != 0 || s.Has(ka[0]) {
		t.Errorf("%d pages are in use after Clear", pages)
	}
}

func TestADiskCacheOutlivesItsProcess(t *testing.T) {
	dir := t.TempDir()
	o := Options{DiskDir: dir, DiskBytes: int64(10 * spec.Size())}
	s := openStack(t, o, spec)
	list := chain(s, 1, 6)
	keys := keysOf(list)
	keep(t, s, list, Stored)
	if _, err := Open(o, spec, nil, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("two stacks opened the same folder")
	}
	closeStack(t, s)

	// Files of the cache that a crash or another server left behind are removed; files that do not belong to the cache
	// are not touched.
	file := func(k prefix.Hash) string { return filepath.Join(dir, k.String()+pageSuffix) }
	whole, err := os.ReadFile(file(keys[0]))
	if err != nil {
		t.Fatal(err)
	}
	other := spec
	other.Weights[0]++
	write := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wrongName, cutOff, foreign := prefix.Hash{7}, prefix.Hash{8}, prefix.Hash{9}
	write(wrongName.String()+pageSuffix, whole)
	write(cutOff.String()+pageSuffix, whole[:len(whole)-1])
	write(foreign.String()+pageSuffix, bytes.Replace(whole, spec.Weights[:], other.Weights[:], 1))
	write(unfinishedStart+"123", whole[:100])
	write("notes.txt", []byte("mine"))
	write(file(keys[5])[len(dir)+1:], bytes.Replace(whole, []byte(spec.Layout), []byte("bf16+f32/9"), 1))

	s = openStack(t, o, spec)
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 5+2 { // five pages, the lock file and the notes
		t.Errorf("files left: %v", left)
	}
	if n, why := bring(t, s, keys, rows(1, 1000)); n != 5 || why != "disk: not held" {
		t.Errorf("%d pages were fetched: %q", n, why)
	}

	// Rows that differ from the checksum in the header are detected when they are read.
	b, err := os.ReadFile(file(keys[3]))
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-10] ^= 4
	write(filepath.Base(file(keys[3])), b)
	if n, why := bring(t, s, keys, rows(1, 1000)); n != 3 || why != "disk: damaged" {
		t.Errorf("%d pages were fetched: %q", n, why)
	}
	await.True(t, "the damaged file is removed", func() bool {
		_, err := os.Stat(file(keys[3]))
		return err != nil
	})
	if c := s.Counts()[0]; c.Damaged != 1 || c.Hits != 8 || c.Pages != 4 {
		t.Errorf("%+v", c)
	}
}

// A page is found from the moment that it is stored, before and after its file is complete: the device may evict and
// request it while the disk is slow.
func TestAPageIsFoundBeforeItsFileIsThere(t *testing.T) {
	s := openStack(t, Options{DiskDir: t.TempDir(), DiskBytes: 1 << 30}, spec)
	const pages = diskQueue
	list := chain(s, 3, pages)
	keys := keysOf(list)
	for _, p := range list {
		s.Keep(p, Stored)
	}
	for range 3 {
		for _, k := range keys {
			if !s.Has(k) {
				t.Fatal("a page passed to Keep is not found")
			}
		}
		if n, why := bring(t, s, keys, rows(3, 1000)); n != pages {
			t.Fatalf("%d of %d pages were fetched: %q", n, pages, why)
		}
	}
	s.Clear()
	if n, why := bring(t, s, keys, rows(3, 1000)); n != 0 {
		t.Errorf("%d pages were fetched after Clear: %q", n, why)
	}
}

func TestADiskCacheKeepsItsBound(t *testing.T) {
	dir := t.TempDir()
	s := openStack(t, Options{DiskDir: dir, DiskBytes: int64(4*spec.Size() + 10)}, spec)
	for seed := range byte(5) {
		keep(t, s, chain(s, seed+1, 3), Stored)
	}
	left := func(n int) {
		await.True(t, fmt.Sprint(n, " files are left"), func() bool {
			files, err := filepath.Glob(filepath.Join(dir, "*"+pageSuffix))
			return err == nil && len(files) == n
		})
	}
	left(4)
	if c := s.Counts()[0]; c.Pages != 4 || c.Evicted != 11 || c.Stored != 15 || c.Bytes > 4*int64(spec.Size()) {
		t.Errorf("%+v", c)
	}
	s.Clear()
	left(0)
	small := Options{DiskDir: t.TempDir(), DiskBytes: 100}
	if _, err := Open(small, spec, nil, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a limit below the size of one page was accepted")
	}
}

// paged is a Spec with pages large enough for a store.
var paged = Spec{Model: "test", Whole: true, Layout: "x", PageTokens: 4, Bytes: 5000}

// For each failure mode of a store, no wrong page is returned and a fetch waits for at most one missing response. When
// the store works again, it is used again.
func TestAStoreThatFailsGivesNothing(t *testing.T) {
	const pages = 80
	for _, mode := range respserver.Modes {
		t.Run(string(mode), func(t *testing.T) {
			server, s, stored := openOnStore(t)
			list := chain(s, 1, pages)[:pages]
			keys := keysOf(list)
			for at := 0; at < pages; at += 20 {
				keep(t, s, list[at:at+20], Stored)
			}
			if server.Len() != pages {
				t.Fatalf("%d pages were written", server.Len())
			}
			server.Set(mode)
			if mode == respserver.Hangs { // in the other modes, no request waits for its time limit
				stored.wait = 20 * time.Millisecond
			}
			n, why := bring(t, s, keys, rows(1, paged.Bytes))
			want := 0
			if mode == respserver.Works || mode == respserver.Full {
				want = pages
			}
			if c := stored.Count(); n != want && !(mode == respserver.Exchanged && n == 1) || c.Failed > 1 {
				t.Errorf("%d pages were fetched: %q after %d failures", n, why, c.Failed)
			}
			more := chain(s, 2, 4)
			keep(t, s, more, Stored)
			server.Set(respserver.Works)
			stored.wait = await.Hang
			stored.mu.Lock()
			stored.down, stored.full, stored.pause = time.Time{}, time.Time{}, 0 // ends the pause
			stored.mu.Unlock()
			if n, why := bring(t, s, keys, rows(1, paged.Bytes)); n != pages {
				t.Errorf("after the store works again: %d pages were fetched: %q", n, why)
			}
		})
	}
}

// If the answer of a store does not state whether it has a page, for example because it has another type, no page is
// sent.
func TestAStoreThatAnswersAnotherCommandGetsNothing(t *testing.T) {
	server := respserver.Start(t)
	server.Set(respserver.Another)
	s := openStack(t, Options{StoreURL: server.URL()}, paged)
	keep(t, s, chain(s, 1, 4), Stored)
	if c := s.tiers[0].Count(); server.Len() != 0 || c.Stored != 0 || c.Failed == 0 {
		t.Errorf("%d pages are in the store, counters %+v", server.Len(), c)
	}
}

// A page that is damaged in the store is written again by the engine that computes it.
func TestADamagedPageIsWrittenAgain(t *testing.T) {
	server := respserver.Start(t)
	s := openStack(t, Options{StoreURL: server.URL()}, paged)
	list := chain(s, 1, 64)
	keys := keysOf(list)
	keep(t, s, list, Stored)
	server.Set(respserver.Garbage)
	if n, why := bring(t, s, keys, nil); n != 0 || why != "store: damaged" {
		t.Errorf("%d pages were fetched: %q", n, why)
	}
	if !s.Wants(keys[0], Stored) || s.Wants(keys[1], Stored) {
		t.Error("want only the damaged page to be written again")
	}
}

// Fetches of many prompts that are closed at random times release all their memory.
func TestFetchesThatEndEarlyLeaveNothing(t *testing.T) {
	server := respserver.Start(t)
	s := openStack(t, Options{StoreURL: server.URL(), HostBytes: 40_000, DiskDir: t.TempDir(), DiskBytes: 1 << 20},
		paged)
	var all [][]prefix.Hash
	for seed := range byte(6) {
		list := chain(s, seed+1, 64)
		all = append(all, keysOf(list))
		keep(t, s, list, Stored, Leaving)
	}
	var wait sync.WaitGroup
	for i := range 60 {
		wait.Go(func() {
			f := s.Fetch(all[i%6], func() {})
			time.Sleep(time.Duration(i%7) * 300 * time.Microsecond)
			for range i % 5 {
				if p, _, _ := f.Next(); p != nil {
					p.Drop()
				}
			}
			f.Close()
		})
	}
	wait.Wait()
}

func TestOptionsThatCannotBe(t *testing.T) {
	for _, url := range []string{"http://x", "redis://", "redis://h/x", "redis://h?a=b", "redis://h?ttl=1ms", "::"} {
		_, err := Open(Options{StoreURL: url}, spec, nil, slog.New(slog.DiscardHandler))
		if err == nil {
			t.Errorf("%q was accepted as the URL of a store", url)
		}
	}
	if _, err := Open(Options{}, Spec{}, nil, nil); err == nil {
		t.Error("a spec without tokens and bytes was accepted")
	}
}

func FuzzPage(f *testing.F) {
	s, err := Open(Options{}, spec, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	p := chain(s, 9, 1)[0]
	into := s.Room()
	whole := append(spec.AppendHeader(nil, p), p.Data...)
	for _, n := range []int{0, 8, atText, spec.HeaderBytes(), len(whole)} {
		f.Add(whole[:n])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := spec.read(into, p.Hash, bytes.NewReader(b), int64(len(b))); err == nil && !bytes.Equal(b, whole) {
			t.Errorf("%d other bytes were accepted as the page", len(b))
		}
	})
}

// Page-locked memory is allocated when a stack opens and freed when it closes.
func TestAnAllocatorIsAskedAtTheBeginningAndTheEnd(t *testing.T) {
	a := &counting{}
	s, err := Open(Options{HostBytes: 100_000}, spec, a, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if a.taken < 100_000 || a.freed != 0 {
		t.Errorf("%d bytes were allocated", a.taken)
	}
	taken := a.taken
	keep(t, s, chain(s, 1, 50), Leaving)
	closeStack(t, s)
	if a.taken != taken || a.freed != taken {
		t.Errorf("%d bytes were allocated, %d freed", a.taken, a.freed)
	}
	if _, err := Open(Options{HostBytes: 1 << 40}, spec, a, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("Open succeeded although the allocation of a terabyte failed")
	}
}

type counting struct{ taken, freed int }

func (c *counting) Take(n int) ([]byte, error) {
	if c.taken-c.freed+n > 1<<30 {
		return nil, fmt.Errorf("no memory for %d bytes", n)
	}
	c.taken += n
	return make([]byte, n), nil
}

func (c *counting) Free(b []byte) error {
	c.freed += len(b)
	return nil
}

// After a restart the most recently written or used files are kept, whatever their names.
func TestADiskCacheForgetsTheOldestAfterARestart(t *testing.T) {
	dir := t.TempDir()
	o := Options{DiskDir: dir, DiskBytes: int64(4 * spec.Size())}
	s := openStack(t, o, spec)
	list := chain(s, 1, 4)
	keys := keysOf(list)
	keep(t, s, list, Stored)
	closeStack(t, s)
	slices.SortFunc(keys, func(a, b prefix.Hash) int { return bytes.Compare(a[:], b[:]) })
	for i, k := range keys { // the first file of the folder is made the most recently used file
		at := time.Unix(int64(1000-i), 0)
		if err := os.Chtimes(filepath.Join(dir, k.String()+pageSuffix), at, at); err != nil {
			t.Fatal(err)
		}
	}
	s = openStack(t, o, spec)
	keep(t, s, chain(s, 2, 2), Stored)
	for i, k := range keys {
		if want := i < 2; s.Has(k) != want {
			t.Errorf("file %d of 4, from the most recently used: Has is %v, want %v", i, s.Has(k), want)
		}
	}
}
