package batch

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// A postponed line does not run before its time.
func TestLinesThatArePutOff(t *testing.T) {
	now := time.Unix(1000, 0)
	s := open(t, Options{Now: func() time.Time { return now }})
	defer s.Stop()
	b := create(t, s, "", lines(1))
	ran := 0
	r := runner(func(context.Context, Line) (Result, error) {
		ran++
		if ran == 1 {
			return Result{}, &Later{After: time.Minute}
		}
		return Result{Succeeded, []byte("{}")}, nil
	})
	next := func() bool {
		s.mu.Lock()
		j, n := s.choose()
		if j != nil && n >= 0 {
			j.pending = append([]int{n}, j.pending...) // the line is first, so that runNext takes it again
		}
		s.mu.Unlock()
		return j != nil && n >= 0
	}
	if !next() || !s.runNext(r) || ran != 1 {
		t.Fatalf("the line ran %d times, want once", ran)
	}
	if next() {
		t.Error("a line that was postponed for a minute may run at once")
	}
	now = now.Add(time.Minute)
	if !next() || !s.runNext(r) || ran != 2 {
		t.Errorf("after a minute the line has run %d times", ran)
	}
	s.mu.Lock()
	s.batches[b.ID].late.Stop()
	s.mu.Unlock()
}

type runner func(context.Context, Line) (Result, error)

func (r runner) Run(ctx context.Context, _ Batch, l Line) (Result, error) { return r(ctx, l) }

func (r runner) Left(_ Batch, _ Line, why Class) Result { return Result{why, []byte("{}")} }

// A batch that is cancelled after its last line has finished ends as cancelled, not as completed.
func TestCancelledAfterTheLastLine(t *testing.T) {
	s := open(t, Options{})
	defer s.Stop()
	b := create(t, s, "", lines(1))
	r := runner(func(context.Context, Line) (Result, error) {
		if _, err := s.Cancel("", b.ID); err != nil {
			t.Error(err)
		}
		return Result{Succeeded, []byte("{}")}, nil
	})
	for range 2 { // the first step runs the line, the second ends the batch
		s.runNext(r)
	}
	if got, err := s.Batch("", b.ID); err != nil || got.State != Cancelled || got.Counts.Succeeded != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Uploads may fill the folder up to seven eighths, exact to the byte; the rest is for results.
func TestUploadsLeaveRoomForResults(t *testing.T) {
	for _, c := range []struct {
		bytes int
		ok    bool
	}{{7 << 10, true}, {7<<10 + 1, false}} {
		s := open(t, Options{Budget: 8 << 10})
		_, err := s.Upload(File{Purpose: "batch"}, strings.NewReader(strings.Repeat("x", c.bytes)))
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrFull) {
			t.Errorf("upload of %d bytes: error %v", c.bytes, err)
		}
		s.Stop()
	}
}

// A file that a batch reads is kept until the batch has ended, even if the file has expired.
func TestFilesThatAreReadStay(t *testing.T) {
	now := time.Unix(1000, 0)
	s := open(t, Options{Now: func() time.Time { return now }, Keep: time.Hour})
	defer s.Stop()
	f := upload(t, s, "", lines(1))
	b, err := s.Create(New{Kind: "k", Endpoint: "/e", Input: f.ID, Window: 100 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Hour)
	if s.Sweep(); !s.HasFile(f.ID) {
		t.Error("Sweep removed the input of a running batch")
	}
	r := runner(func(context.Context, Line) (Result, error) { return Result{Succeeded, []byte("{}")}, nil })
	for range 2 {
		s.runNext(r)
	}
	if got, err := s.Batch("", b.ID); err != nil || got.State != Completed {
		t.Fatalf("%+v, %v", got, err)
	}
	if s.Sweep(); s.HasFile(f.ID) {
		t.Error("Sweep kept an expired file after its batch has ended")
	}
}

// The incomplete last entry of a journal is removed, so that the next entry begins on a new line.
func TestTornEntriesAreRemoved(t *testing.T) {
	whole := string(appendEntry(nil, 3, Result{Succeeded, []byte(`{"a":1}`)}))
	for cut := range len(whole) {
		path := filepath.Join(t.TempDir(), "journal")
		if err := os.WriteFile(path, []byte(whole+whole[:cut]), 0o600); err != nil {
			t.Fatal(err)
		}
		seen := 0
		f, err := recoverJournal(path, func(int, Class) error { seen++; return nil })
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != whole || seen != 1 {
			t.Errorf("cut after %d bytes: journal %q, %d entries, error %v", cut, got, seen, err)
		}
	}
}

// A worker continues after every line and every end of a batch, until the store stops.
func TestWorkersContinueAfterABatch(t *testing.T) {
	s := open(t, Options{})
	var ran []string
	r := runner(func(_ context.Context, l Line) (Result, error) {
		ran = append(ran, l.CustomID)
		return Result{Succeeded, []byte("{}")}, nil
	})
	for range 2 {
		b := create(t, s, "", lines(2))
		for i := range 3 { // three steps: two lines and the end of the batch
			if !s.runNext(r) {
				t.Fatalf("the worker stops after step %d", i)
			}
		}
		if got, err := s.Batch("", b.ID); err != nil || got.State != Completed || got.Counts.Succeeded != 2 {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if want := []string{"r0", "r1", "r0", "r1"}; !slices.Equal(ran, want) {
		t.Errorf("lines %v were run, want %v", ran, want)
	}
	if err := s.Stop(); err != nil || s.runNext(r) {
		t.Errorf("error %v, or the worker continues after its store has stopped", err)
	}
}

// A line is read whole, however many times it fills the reader's buffer. Only its first bytes are kept.
func TestLinesOfAnyLength(t *testing.T) {
	const buffer = 16
	for _, n := range []int{0, 1, buffer - 2, buffer - 1, buffer, buffer + 1, 2*buffer - 1, 2 * buffer, 100} {
		text := strings.Repeat("x", n)
		for _, keep := range []int{1, buffer, buffer + 1, 200} {
			r := bufio.NewReaderSize(strings.NewReader(text+"\n"+text), buffer)
			for _, line := range []string{text + "\n", text} {
				head, length, whole, err := readLine(r, keep)
				if want := line[:min(keep, len(line))]; err != nil || string(head) != want ||
					length != int64(len(line)) || whole != strings.HasSuffix(line, "\n") {
					t.Errorf("line of %d bytes, %d bytes kept: head %q, length %d, whole %v, error %v", len(line), keep,
						head, length,
						whole, err)
				}
			}
		}
	}
	failing := iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("ab\n"))) // the second read fails
	if _, _, _, err := readLine(bufio.NewReaderSize(failing, buffer), 9); !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("a file that cannot be read: error %v", err)
	}
}

// A journal with results that are longer than a buffer is read again, and its results are returned without the heads of
// entries, in pieces of any size.
func TestLongResultsAreRead(t *testing.T) {
	path, want := filepath.Join(t.TempDir(), "journal"), ""
	var journal []byte
	for i, n := range []int{3, 1<<16 - headBytes - 1, 1<<16 - headBytes, 1 << 16, 1 << 18, 0, 5} {
		text := strings.Repeat(string(rune('a'+i)), n)
		journal, want = appendEntry(journal, i, Result{Succeeded, []byte(text)}), want+text+"\n"
	}
	if err := os.WriteFile(path, journal, 0o600); err != nil {
		t.Fatal(err)
	}
	var seen []int
	f, err := recoverJournal(path, func(line int, _ Class) error { seen = append(seen, line); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if at, err := f.Seek(0, io.SeekCurrent); err != nil || at != int64(len(journal)) ||
		!slices.Equal(seen, []int{0, 1, 2, 3, 4, 5, 6}) {
		t.Errorf("entries %v, appending continues at byte %d of %d, error %v", seen, at, len(journal), err)
	}
	for _, piece := range []int{1000, 1 << 16, 1 << 20} {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		r, p := newResults(f), make([]byte, piece)
		for n, err := r.Read(p); err == nil; n, err = r.Read(p) {
			got.Write(p[:n])
		}
		if got.String() != want {
			t.Errorf("with reads of %d bytes: %d bytes are returned, want %d", piece, got.Len(), len(want))
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// A list reports more objects only if there are more.
func TestListsThatEnd(t *testing.T) {
	s := open(t, Options{})
	defer s.Stop()
	for range 3 {
		upload(t, s, "", lines(1))
	}
	for limit, want := range map[int]struct {
		n    int
		more bool
	}{1: {1, true}, 2: {2, true}, 3: {3, false}, 4: {3, false}} {
		if list, more := s.Files("", "", "", limit); len(list) != want.n || more != want.more {
			t.Errorf("limit %d: %d files, more is %v", limit, len(list), more)
		}
	}
}

// Ended batches expire with their files when they have been kept long enough; running ones do not.
func TestEndedBatchesExpire(t *testing.T) {
	now := time.Unix(1000, 0)
	s := open(t, Options{Now: func() time.Time { return now }, Keep: time.Hour})
	defer s.Stop()
	running, err := s.Create(New{Tenant: "a", Kind: "k", Lines: strings.NewReader(lines(1)), Window: 9 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if f, err := s.File("a", running.Input); !errors.Is(err, ErrUnknown) {
		t.Errorf("the input of a batch of lines is listed: %+v, %v", f, err)
	}
	ended := create(t, s, "a", lines(1))
	if _, err := s.Cancel("a", ended.ID); err != nil {
		t.Fatal(err)
	}
	s.runNext(&echo{}) // ends the batch, because nothing runs
	if b, err := s.Batch("a", ended.ID); err != nil || b.State != Cancelled {
		t.Fatalf("%+v, %v", b, err)
	}
	for _, c := range []struct {
		after time.Duration
		left  int
	}{{time.Hour - 1, 2}, {1, 1}, {5 * time.Hour, 1}} {
		now = now.Add(c.after)
		s.Sweep()
		list, _ := s.Batches("a", "k", "", 9)
		if len(list) != c.left || !slices.ContainsFunc(list, func(b Batch) bool { return b.ID == running.ID }) {
			t.Errorf("after %v: %+v, want %d batches", c.after, list, c.left)
		}
	}
	if _, err := os.Stat(s.data(ended.ID)); err == nil {
		t.Error("data of an expired batch is left")
	}
}

// A batch whose state cannot be written is not cancelled.
func TestCancellingWithoutAFolder(t *testing.T) {
	s := open(t, Options{})
	defer s.Stop()
	b := create(t, s, "", lines(2))
	if err := os.RemoveAll(s.o.Dir); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Cancel("", b.ID); err == nil || got.ID != "" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := s.Batch("", b.ID); err != nil || got.State != Running || !got.Cancel.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
}
