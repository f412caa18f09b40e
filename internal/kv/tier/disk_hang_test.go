//go:build unix

package tier

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"sparrow/internal/kv/prefix"
	"sparrow/internal/testkit/await"
)

// diskOf returns the disk of a stack with pages in it.
func diskOf(t *testing.T, pages int) (*disk, *Stack, []prefix.Hash) {
	t.Helper()
	s := openStack(t, Options{HostBytes: 1 << 20, DiskDir: t.TempDir(), DiskBytes: 1 << 20}, spec)
	list := chain(s, 1, pages)
	keys := keysOf(list)
	keep(t, s, list, Stored)
	for _, each := range s.tiers {
		if d, ok := each.(*disk); ok {
			return d, s, keys
		}
	}
	t.Fatal("the stack has no disk")
	return nil, nil, nil
}

// load loads pages from a disk and returns how many pages were read and why the load stopped.
func load(ctx context.Context, d *disk, s *Stack, keys []prefix.Hash) (int, string) {
	return d.Load(ctx, keys, func(context.Context) *Page { return s.Room() }, func(p *Page) bool {
		p.Drop()
		return true
	})
}

// A FIFO in place of a page's file is treated as a damaged page. No call waits for a writer of the FIFO, at the start
// or later.
func TestAFIFOIsNoPage(t *testing.T) {
	d, s, keys := diskOf(t, 2)
	for _, k := range keys {
		if err := os.Remove(d.path(k)); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(d.path(k), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n, why := load(t.Context(), d, s, keys); n != 0 || why != "damaged" {
		t.Errorf("%d pages were loaded, then %q", n, why)
	}
	if _, _, err := openRegular(d.path(keys[1])); err == nil {
		t.Error("a FIFO was opened")
	}
	if d.Count().Pages != 1 {
		t.Errorf("%d pages are left in the tier", d.Count().Pages)
	}
}

// A file system that does not respond blocks only one thread, however many requests there are, and Close does not wait
// for the file system. When the file system responds again, the tier reads from it again, and all memory is released.
func TestADiskThatHangs(t *testing.T) {
	d, s, keys := diskOf(t, 2)
	asked, answers := make(chan struct{}, 100), make(chan struct{})
	read := d.load
	d.load = func(p *Page, k prefix.Hash) error {
		asked <- struct{}{}
		<-answers
		return read(p, k)
	}
	d.patience = time.Millisecond
	for range 20 {
		if n, why := load(t.Context(), d, s, keys); n != 0 || why != noAnswer {
			t.Fatalf("%d pages were loaded, then %q", n, why)
		}
	}
	if len(asked) != 1 {
		t.Errorf("%d reads were begun, want one read", len(asked))
	}
	close(answers)
	await.True(t, "reads end", func() bool { return d.late.Load() == 0 && len(d.reading) == 0 })
	d.patience = time.Hour
	if n, why := load(t.Context(), d, s, keys); n != 2 {
		t.Errorf("%d pages were loaded after the file system responded again, then %q", n, why)
	}
	// In this case requests end while the file system hangs, and then the process ends.
	answers = make(chan struct{})
	ctx, leave := context.WithCancel(t.Context())
	leave()
	for range 10 * mostReads {
		if n, _ := load(ctx, d, s, keys); n != 0 {
			t.Fatalf("%d pages were loaded", n)
		}
	}
	if n := len(d.reading); n == 0 || n > mostReads {
		t.Errorf("%d reads are in progress, want some and at most %d", n, mostReads)
	}
	close(answers)
	await.True(t, "reads end", func() bool { return len(d.reading) == 0 })
}

// If the file system hangs while a file is removed, other calls still look up and store pages, clear and close the
// tier. The file is removed when the file system responds.
func TestADiskThatHangsAsFilesAreRemoved(t *testing.T) {
	d, s, keys := diskOf(t, 2)
	asked, answers := make(chan struct{}, 100), make(chan struct{})
	unlink := d.unlink
	d.unlink = func(k prefix.Hash) error {
		asked <- struct{}{}
		<-answers
		return unlink(k)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Clear()
		await.Value(t, "a file is removed", asked)
		if s.Has(keys[0]) || d.Count().Pages != 0 {
			t.Error("the tier still has a dropped page")
		}
		list := chain(s, 2, 1)
		s.Keep(list[0], Stored)
		if !d.Has(list[0].Hash) {
			t.Error("the tier does not have a page that waits for its file")
		}
		s.Clear()
	}()
	await.Value(t, "no call waits for the file system", done)
	if _, err := os.Stat(d.path(keys[0])); err != nil {
		t.Error(err)
	}
	d.patience = time.Millisecond
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	close(answers)
	await.Value(t, "the writer ends", d.stopped)
	for _, k := range keys {
		if _, err := os.Stat(d.path(k)); err == nil {
			t.Errorf("the file of page %v was not removed", k)
		}
	}
	d.lock, _ = lockFolder(d.dir) // the stack closes it again
}

// A page that is stored again before its file was removed keeps the file.
func TestAPageThatComesAgainKeepsItsFile(t *testing.T) {
	d, s, keys := diskOf(t, 1)
	s.host.Clear()
	asked, answers := make(chan struct{}, 100), make(chan struct{})
	unlink := d.unlink
	d.unlink = func(k prefix.Hash) error {
		asked <- struct{}{}
		<-answers
		return unlink(k)
	}
	other := chain(s, 2, 1)
	keep(t, s, other, Stored)
	d.mu.Lock()
	d.remove(other[0].Hash) // the writer is blocked in this removal
	d.mu.Unlock()
	await.Value(t, "a file is removed", asked)
	d.mu.Lock()
	d.remove(keys[0])
	d.mu.Unlock()
	again := chain(s, 1, 1)
	s.Keep(again[0], Stored)
	close(answers)
	await.True(t, "the page is stored", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.pages[keys[0]] != nil && len(d.doomed) == 0
	})
	s.host.Clear()
	if n, why := load(t.Context(), d, s, keys); n != 1 {
		t.Errorf("%d pages were loaded, then %q", n, why)
	}
}

// Close waits for reads whose results are no longer wanted. If the reads do not return in time, Close logs this, and
// their pages are released when they return.
func TestCloseWaitsForReads(t *testing.T) {
	d, s, keys := diskOf(t, 1)
	answers := make(chan struct{})
	d.load = func(*Page, prefix.Hash) error {
		<-answers
		return os.ErrNotExist
	}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	for len(d.reading) == 0 { // a load whose context has ended may or may not begin a read
		if n, why := load(ctx, d, s, keys); n != 0 || why != noAnswer {
			t.Fatalf("%d pages were loaded, then %q", n, why)
		}
	}
	var log bytes.Buffer
	d.log, d.patience = slog.New(slog.NewTextHandler(&log, nil)), time.Millisecond
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "does not respond") {
		t.Errorf("Close did not wait for the read; the log is %q", log.String())
	}
	close(answers)
	await.True(t, "the read ends", func() bool { return len(d.reading) == 0 })
	d.lock, _ = lockFolder(d.dir) // the stack closes it again
}

// If a page's file is written while the tier is cleared, the page is not in the tier and its file is removed.
func TestAFileThatIsWrittenWhileTheTierIsCleared(t *testing.T) {
	d, s, _ := diskOf(t, 1)
	asked, answers := make(chan struct{}), make(chan struct{})
	save := d.save
	d.save = func(p *Page) error {
		asked <- struct{}{}
		<-answers
		return save(p)
	}
	p := chain(s, 2, 1)[0]
	stored := d.Count().Stored
	s.Keep(p, Stored)
	await.Value(t, "the file is written", asked)
	s.Clear()
	close(answers)
	await.True(t, "the page is released", func() bool { return p.refs.Load() == 0 })
	if c := d.Count(); d.Has(p.Hash) || c.Pages != 0 || c.Stored != stored || c.Failed != 0 {
		t.Errorf("the tier has the page: %v, counters %+v", d.Has(p.Hash), c)
	}
	d.stop()
	await.Value(t, "the writer ends", d.stopped)
	if _, err := os.Stat(d.path(p.Hash)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of the page was not removed: error %v", err)
	}
}
