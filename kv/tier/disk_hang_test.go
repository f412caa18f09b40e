//go:build unix

package tier

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"sparrow/kv/prefix"
)

// diskOf is the disk of a stack with pages in it.
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

// load asks a disk for pages and says how many came.
func load(ctx context.Context, d *disk, s *Stack, keys []prefix.Hash) (int, string) {
	return d.Load(ctx, keys, func(context.Context) *Page { return s.Room() }, func(p *Page) bool {
		p.Drop()
		return true
	})
}

// A FIFO in the place of a page's file is a damaged page: nobody waits for a writer, at the start or later.
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
		t.Errorf("%d pages came, then %q", n, why)
	}
	if _, _, err := openRegular(d.path(keys[1])); err == nil {
		t.Error("a FIFO was opened")
	}
	if d.Count().Pages != 1 {
		t.Errorf("%d pages are left", d.Count().Pages)
	}
}

// A file system that does not answer keeps one thread, however many ask, and nobody waits for it at the end. When it
// answers again it is asked again, and all memory comes back.
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
			t.Fatalf("%d pages came, then %q", n, why)
		}
	}
	if len(asked) != 1 {
		t.Errorf("%d reads were begun, want one", len(asked))
	}
	close(answers)
	for d.late.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	d.patience = time.Hour
	if n, why := load(t.Context(), d, s, keys); n != 2 {
		t.Errorf("%d pages came after it answers again, then %q", n, why)
	}
	// Requests that leave while it hangs, and the end of the process.
	answers = make(chan struct{})
	ctx, leave := context.WithCancel(t.Context())
	leave()
	for range 2 * mostLeft {
		if n, _ := load(ctx, d, s, keys); n != 0 {
			t.Fatalf("%d pages came", n)
		}
	}
	if n := d.left.Load(); n != mostLeft {
		t.Errorf("%d reads go on, want %d", n, mostLeft)
	}
	close(answers)
	for d.left.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
}

// A stack closes after the reads that nobody waits for: their pages come back.
func TestCloseWaitsForReads(t *testing.T) {
	d, s, keys := diskOf(t, 1)
	d.load = func(*Page, prefix.Hash) error {
		<-d.stopped
		time.Sleep(20 * time.Millisecond) // a Close that does not wait for this read returns before
		return os.ErrNotExist
	}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if n, why := load(ctx, d, s, keys); n != 0 || why != noAnswer {
		t.Fatalf("%d pages came, then %q", n, why)
	}
	closeStack(t, s)
}
