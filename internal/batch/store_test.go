package batch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sparrow/internal/filelock"
	"sparrow/internal/testkit/await"
)

// echo is a runner whose results are the custom ids of their lines. Lines that begin with "bad" fail.
type echo struct {
	mu   sync.Mutex
	ran  map[string]int
	hold chan struct{} // if set, each line waits for a value, or until its context ends
	put  int           // number of lines that are postponed once
}

func (e *echo) Run(ctx context.Context, _ Batch, l Line) (Result, error) {
	if e.hold != nil {
		select {
		case <-e.hold:
		case <-ctx.Done():
			return Result{}, ctx.Err()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.put > 0 {
		e.put--
		return Result{}, &Later{After: time.Millisecond}
	}
	if e.ran == nil {
		e.ran = map[string]int{}
	}
	e.ran[l.CustomID]++
	if l.CustomID == "" || l.Duplicate || l.TooLong || strings.HasPrefix(l.CustomID, "bad") {
		return Result{Errored, fmt.Appendf(nil, `{"line": %d, "failed": %q}`, l.Number, l.CustomID)}, nil
	}
	return Result{Succeeded, fmt.Appendf(nil, `{"line": %d, "id": %q}`, l.Number, l.CustomID)}, nil
}

func (e *echo) Left(_ Batch, l Line, why Class) Result {
	return Result{why, fmt.Appendf(nil, `{"line": %d, "left": %q}`, l.Number, why)}
}

func open(t *testing.T, o Options) *Store {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"custom_id\": \"r%d\"}\n", i)
	}
	return b.String()
}

func upload(t *testing.T, s *Store, tenant, text string) File {
	t.Helper()
	f, err := s.Upload(File{Tenant: tenant, Name: "in.jsonl", Purpose: "batch"}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func create(t *testing.T, s *Store, tenant, text string) Batch {
	t.Helper()
	b, err := s.Create(New{Tenant: tenant, Kind: "k", Endpoint: "/e", Input: upload(t, s, tenant, text).ID,
		Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A batch can only be made from a file that the same tenant uploaded for batches; a refused batch does not lock its
// file.
func TestBatchesAreMadeOfFilesForThem(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	good := upload(t, s, "a", lines(1))
	other, err := s.Upload(File{Tenant: "a", Name: "out.jsonl", Purpose: "batch_output"}, strings.NewReader(lines(1)))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		tenant, input string
		want          error
	}{
		"another purpose":  {"a", other.ID, ErrInput},
		"another tenant's": {"b", good.ID, ErrUnknown},
		"no file":          {"a", "file-x", ErrUnknown},
	} {
		_, err := s.Create(New{Tenant: c.tenant, Kind: "k", Endpoint: "/e", Input: c.input, Window: time.Hour})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, f := range []File{good, other} {
		if err := s.DeleteFile("a", f.ID); err != nil {
			t.Errorf("file %s is still held: %v", f.Name, err)
		}
	}
}

func wait(t *testing.T, s *Store, b Batch) Batch {
	t.Helper()
	await.True(t, "the batch ends", func() bool {
		var err error
		if b, err = s.Batch(b.Tenant, b.ID); err != nil {
			t.Fatal(err)
		}
		return b.State.Ended()
	})
	return b
}

func read(t *testing.T, s *Store, tenant, id string) (list []string) {
	t.Helper()
	f, data, err := s.Content(tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	text, err := io.ReadAll(data)
	if err != nil || int64(len(text)) != f.Bytes {
		t.Fatalf("file %s has %d bytes, its metadata says %d, error %v", id, len(text), f.Bytes, err)
	}
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	for lines.Scan() {
		list = append(list, lines.Text())
	}
	return list
}

func TestBadLinesFailAlone(t *testing.T) {
	s := open(t, Options{Workers: 3, Line: 100})
	defer s.Stop()
	s.Start(&echo{put: 2})
	text := lines(3) + "\n  \nnot JSON\n" + `{"custom_id": "r1"}` + "\n" + `{"custom_id": "bad"}` + "\n" +
		// The last line has no line break.
		`{"custom_id": "long` + strings.Repeat("x", 200) + `"}` + "\n" + `{"custom_id": "last"}`
	b := wait(t, s, create(t, s, "a", text))
	if want := (Counts{Succeeded: 4, Errored: 4}); b.Counts != want || b.State != Completed || b.Lines != 8 {
		t.Errorf("%+v", b)
	}
	if got := read(t, s, "a", b.Output); len(got) != 4 {
		t.Errorf("output %q", got)
	}
	if got := read(t, s, "a", b.Errors); len(got) != 4 {
		t.Errorf("errors %q", got)
	}
	if st := s.Stats(); st.Left != 0 || st.Flying != 0 || st.Lines[Errored] != 4 || st.Batches[Completed] != 1 {
		t.Errorf("%+v", st)
	}
}

// If the process is killed at any byte of its journals, the results still contain each line once.
func TestAKillAtAnyByte(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	hold := make(chan struct{})
	s.Start(&echo{hold: hold})
	const n = 6
	b := create(t, s, "", lines(2)+`{"custom_id": "bad"}`+"\n"+lines(n)[len(lines(2)):])
	for range 5 {
		hold <- struct{}{}
	}
	await.True(t, "lines end", func() bool { b, _ = s.Batch("", b.ID); return b.Counts.Done() == 5 })
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, b.Output+".data"))
	if err != nil {
		t.Fatal(err)
	}
	for size := range len(whole) + 1 {
		copied := t.TempDir()
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copied, b.Output+".data"), whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, Options{Dir: copied, Workers: 2})
		e := &echo{}
		before, _ := s.Batch("", b.ID)
		s.Start(e)
		ended := wait(t, s, b)
		seen := map[string]int{}
		for _, line := range append(read(t, s, "", b.Output), read(t, s, "", b.Errors)...) {
			seen[line]++
		}
		if len(seen) != n+1 || ended.Counts != (Counts{Succeeded: n, Errored: 1}) || before.Counts.Done() > 5 {
			t.Fatalf("killed after %d bytes: results %v, batch %+v", size, seen, ended)
		}
		e.mu.Lock()
		if len(e.ran) != n+1-before.Counts.Done() {
			t.Errorf("killed after %d bytes: %d lines were done, %d lines ran", size, before.Counts.Done(), len(e.ran))
		}
		e.mu.Unlock()
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		again := open(t, Options{Dir: copied}) // opening the folder again does not change a batch that has ended
		if got, err := again.Batch("", b.ID); err != nil || got.Counts != ended.Counts || got.State != Completed {
			t.Errorf("%+v, %v", got, err)
		}
		again.Stop()
	}
}

func TestCancelledAndExpiredLinesAreNamed(t *testing.T) {
	for _, c := range []struct {
		state State
		class Class
	}{{Cancelled, LineCancel}, {Expired, LineExpired}} {
		var mu sync.Mutex
		now := time.Unix(1000, 0)
		s := open(t, Options{Workers: 2, Now: func() time.Time { mu.Lock(); defer mu.Unlock(); return now }})
		hold := make(chan struct{})
		s.Start(&echo{hold: hold})
		b := create(t, s, "", lines(7))
		hold <- struct{}{}
		await.True(t, "a line ends", func() bool { b, _ = s.Batch("", b.ID); return b.Counts.Done() == 1 })
		if c.state == Cancelled {
			if got, err := s.Cancel("", b.ID); err != nil || got.State != Cancelling {
				t.Fatalf("%+v, %v", got, err)
			}
		} else {
			mu.Lock()
			now = now.Add(2 * time.Hour)
			mu.Unlock()
			s.Wake()
		}
		b = wait(t, s, b)
		if b.State != c.state || b.Counts.Succeeded != 1 || b.Counts.Done() != 7 {
			t.Errorf("%+v", b)
		}
		if got := read(t, s, "", b.Errors); len(got) != 6 || !strings.Contains(got[0], c.class.String()) {
			t.Errorf("%q", got)
		}
		if _, err := s.Cancel("", b.ID); !errors.Is(err, ErrEnded) {
			t.Errorf("cancelling again: error %v", err)
		}
		mu.Lock()
		now = now.Add(DefaultKeep)
		mu.Unlock()
		s.Sweep()
		if used, _ := s.Used(); used != 0 {
			t.Errorf("%d bytes are left after all objects have expired", used)
		}
		if _, err := s.Batch("", b.ID); !errors.Is(err, ErrUnknown) {
			t.Errorf("reading an expired batch: error %v", err)
		}
		s.Stop()
	}
}

func TestTenantsDoNotSeeEachOther(t *testing.T) {
	s := open(t, Options{Workers: 1})
	defer s.Stop()
	hold := make(chan struct{}, 100)
	s.Start(&echo{hold: hold})
	b := create(t, s, "a", lines(2))
	_, err1 := s.Batch("b", b.ID)
	_, err2 := s.Cancel("b", b.ID)
	_, err3 := s.File("b", b.Input)
	_, _, err4 := s.Content("b", b.Input)
	_, err5 := s.Create(New{Tenant: "b", Input: b.Input, Window: time.Hour})
	for i, err := range []error{err1, err2, err3, err4, err5, s.DeleteFile("b", b.Input), s.DeleteBatch("b", b.ID)} {
		if !errors.Is(err, ErrUnknown) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if list, _ := s.Batches("b", "k", "", 10); len(list) > 0 {
		t.Errorf("%+v", list)
	}
	if err := s.DeleteFile("a", b.Input); !errors.Is(err, ErrInUse) {
		t.Errorf("deleting the input of a running batch: error %v", err)
	}
	hold <- struct{}{}
	hold <- struct{}{}
	wait(t, s, b)
	if err := errors.Join(s.DeleteFile("a", b.Input), s.DeleteBatch("a", b.ID)); err != nil {
		t.Error(err)
	}
	if used, _ := s.Used(); used != 0 {
		t.Errorf("%d bytes are left, want 0", used)
	}
	entries, err := os.ReadDir(s.o.Dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

// Uploads leave space for results in the folder, and lines wait until there is space for their results.
func TestTheBudgetHolds(t *testing.T) {
	const budget = 64 << 10
	s := open(t, Options{Budget: budget, Workers: 4})
	defer s.Stop()
	if _, err := s.Upload(File{Purpose: "batch"}, strings.NewReader(lines(5000))); !errors.Is(err, ErrFull) {
		t.Fatalf("uploading a file above the budget: error %v", err)
	}
	if used, _ := s.Used(); used != 0 {
		t.Fatalf("%d bytes of a refused file are left", used)
	}
	filler := upload(t, s, "", strings.Repeat("x", 24<<10))
	b := create(t, s, "", lines(1200)) // the lines take 25 KB and their results 40 KB
	s.Start(&echo{})
	await.True(t, "lines wait for space", func() bool {
		st := s.Stats()
		return st.Flying == 0 && st.Used > budget*7/8
	})
	if used, _ := s.Used(); used > budget {
		t.Errorf("the folder has %d bytes of a budget of %d", used, budget)
	}
	if err := s.DeleteFile("", filler.ID); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.o.Budget *= 2
	s.change.Broadcast()
	s.mu.Unlock()
	if b = wait(t, s, b); b.Counts.Succeeded != 1200 {
		t.Errorf("%+v", b)
	}
}

func TestTheFolderHasOneOwner(t *testing.T) {
	s := open(t, Options{})
	defer s.Stop()
	if _, err := Open(Options{Dir: s.o.Dir}); !errors.Is(err, ErrFolder) || !strings.Contains(err.Error(), "another") {
		t.Errorf("%v", err)
	}
}

// A folder is used without a lock only if its file system has no locks. If locking fails in another way, the folder is
// refused.
func TestFoldersThatCannotBeLocked(t *testing.T) {
	fault := errors.New("fault")
	for _, c := range []struct {
		ok        bool
		err, want error
		log       string
	}{
		{true, nil, nil, ""}, {false, filelock.ErrNone, nil, "cannot be locked"}, {false, nil, ErrFolder, ""},
		{false, fault, fault, ""},
	} {
		var log strings.Builder
		s := &Store{o: Options{Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil))}}
		err := s.claim(func(*os.File) (bool, error) { return c.ok, c.err })
		if !errors.Is(err, c.want) || c.want != nil && !errors.Is(err, ErrFolder) || (s.lock != nil) != (err == nil) ||
			!strings.Contains(log.String(), c.log) || c.log == "" && log.Len() > 0 {
			t.Errorf("case %+v: error %v, the lock file is kept open: %v, log %q", c, err, s.lock != nil, log.String())
		}
		if s.lock != nil {
			if err := s.lock.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestInputsThatAreNone(t *testing.T) {
	s := open(t, Options{Lines: 10})
	defer s.Stop()
	for _, text := range []string{"", "\n\n", lines(11)} {
		_, err := s.Create(New{Input: upload(t, s, "", text).ID, Window: time.Hour})
		if !errors.Is(err, ErrInput) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	if _, err := s.Create(New{Lines: strings.NewReader(""), Window: time.Hour}); !errors.Is(err, ErrInput) {
		t.Errorf("a file without lines: error %v", err)
	}
}

// Batches and files are listed in pages, newest first.
func TestLists(t *testing.T) {
	now := time.Unix(1000, 0)
	s := open(t, Options{Now: func() time.Time { now = now.Add(time.Second); return now }})
	defer s.Stop()
	var ids []string
	for range 5 {
		ids = append(ids, upload(t, s, "", "x").ID)
	}
	first, more := s.Files("", "batch", "", 2)
	rest, last := s.Files("", "batch", first[1].ID, 10)
	if !more || last || len(rest) != 3 || first[0].ID != ids[4] || rest[2].ID != ids[0] {
		t.Errorf("pages %v and %v of the list %v", first, rest, ids)
	}
}
