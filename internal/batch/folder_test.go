package batch

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Invariants of this file: what a folder holds survives the store, and what is removed leaves nothing.

// succeed is a runner whose lines all succeed with the same result.
var succeed = runner(func(context.Context, Line) (Result, error) { return Result{Succeeded, []byte("{}")}, nil })

// A store that opens a folder finds the files and the batches of the store before, continues unfinished batches, and
// removes data that belongs to nothing.
func TestAFolderIsOpenedAgain(t *testing.T) {
	now := time.Unix(1000, 0)
	o := Options{Dir: t.TempDir(), Now: func() time.Time { return now }, Keep: time.Hour}
	s := open(t, o)
	bad, e := `{"custom_id": "bad"}`+"\n", &echo{}
	ended := create(t, s, "a", lines(1)+bad)
	for range 3 {
		s.runNext(e)
	}
	half, err := s.Create(New{Tenant: "a", Kind: "m", Lines: strings.NewReader(lines(2) + bad), Prefix: "msgbatch_",
		OneFile: true, Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	s.runNext(e)
	if st := s.Stats(); st.Left != 2 || st.Batches[Running] != 1 || st.Batches[Completed] != 1 {
		t.Errorf("before the end: %+v", st)
	}
	used, budget := s.Used()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file-lost.data", "file-lost.json.part"} {
		if err := os.WriteFile(filepath.Join(o.Dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, o)
	defer s.Stop()
	if u, b := s.Used(); u != used || b != budget {
		t.Errorf("%d bytes of %d are used, before it were %d of %d", u, b, used, budget)
	}
	if left, _ := filepath.Glob(filepath.Join(o.Dir, "file-lost*")); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	if b, err := s.Batch("a", ended.ID); err != nil || b.State != Completed || b.Counts.Succeeded != 1 {
		t.Errorf("the batch that had ended: %+v, error %v", b, err)
	}
	for name, id := range map[string]string{"output": ended.Output, "errors": ended.Errors} {
		if f, err := s.File("a", id); err != nil || f.Name != ended.ID+"_"+name+".jsonl" ||
			f.Purpose != "batch_output" || len(read(t, s, "a", f.ID)) != 1 {
			t.Errorf("its %s: %+v, error %v", name, f, err)
		}
	}
	if st := s.Stats(); st.Left != 2 || st.Batches[Running] != 1 || st.Batches[Completed] != 1 {
		t.Errorf("after opening the folder: %+v", st)
	}
	for range 3 {
		s.runNext(e)
	}
	b, err := s.Batch("a", half.ID)
	if err != nil || b.State != Completed || b.Counts.Succeeded != 2 || b.Errors != b.Output ||
		!strings.HasPrefix(b.ID, "msgbatch_") || len(read(t, s, "a", b.Output)) != 3 {
		t.Errorf("the batch that continued: %+v, error %v", b, err)
	}
	if _, err := os.Stat(s.data(b.Input)); err == nil || len(s.held) != 0 {
		t.Errorf("the lines of an ended batch are left, or %v are held", s.held)
	}
	if err := errors.Join(s.DeleteBatch("a", half.ID), s.DeleteBatch("a", ended.ID),
		s.DeleteFile("a", ended.Input)); err != nil {
		t.Fatal(err)
	}
	if u, _ := s.Used(); u != 0 || len(s.files) != 0 {
		t.Errorf("%d bytes of %d files are left", u, len(s.files))
	}
}

// Lists hold the objects of one tenant, batches those of one kind, and files those of one purpose if one is given.
// Inputs that were not uploaded are in no list, and belong to the tenant of their batch. Objects of the same time are
// in the order of their ids.
func TestListsHoldWhatIsAskedFor(t *testing.T) {
	s := open(t, Options{Now: func() time.Time { return time.Unix(1000, 0) }})
	defer s.Stop()
	ids := map[string]string{}
	for _, c := range []struct{ tenant, purpose string }{{"a", "batch"}, {"a", "user_data"}, {"b", "batch"}} {
		f, err := s.Upload(File{Tenant: c.tenant, Purpose: c.purpose}, strings.NewReader(lines(1)))
		if err != nil {
			t.Fatal(err)
		}
		ids[c.tenant+" "+c.purpose] = f.ID
	}
	var batches []string
	for _, kind := range []string{"k", "k", "m"} {
		b, err := s.Create(New{Tenant: "a", Kind: kind, Lines: strings.NewReader(lines(1)), Window: time.Hour})
		if err != nil || s.files[b.Input] != nil {
			t.Fatalf("%+v, error %v", s.files[b.Input], err)
		}
		if kind == "k" {
			batches = append(batches, b.ID)
		}
	}
	slices.Sort(batches)
	var got []string
	list, _ := s.Batches("a", "k", "", 9)
	for _, b := range list {
		got = append(got, b.ID)
	}
	if !slices.Equal(got, batches) {
		t.Errorf("batches %v, want %v", got, batches)
	}
	for _, c := range []struct {
		tenant, purpose string
		want            []string
	}{
		{"a", "", []string{ids["a batch"], ids["a user_data"]}}, {"a", "batch", []string{ids["a batch"]}},
		{"b", "", []string{ids["b batch"]}}, {"b", "user_data", nil}, {"c", "", nil},
	} {
		got := map[string]bool{}
		list, more := s.Files(c.tenant, c.purpose, "", 9)
		for _, f := range list {
			got[f.ID] = true
		}
		want := map[string]bool{}
		for _, id := range c.want {
			want[id] = true
		}
		if more || !maps.Equal(got, want) {
			t.Errorf("files of %s for %q: %v, want %v", c.tenant, c.purpose, got, want)
		}
	}
}

// A file expires at the time that was set, also if the folder was opened again since. Other files stay.
func TestFilesExpireAtTheirTime(t *testing.T) {
	now := time.Unix(1000, 0)
	o := Options{Dir: t.TempDir(), Now: func() time.Time { return now }, Keep: time.Hour}
	s := open(t, o)
	early, late := upload(t, s, "a", "x"), upload(t, s, "a", "y")
	if _, err := s.Expire("b", early.ID, now); !errors.Is(err, ErrUnknown) {
		t.Errorf("a file of another tenant: error %v", err)
	}
	at := now.Add(time.Minute)
	if f, err := s.Expire("a", early.ID, at); err != nil || !f.Expires.Equal(at) {
		t.Errorf("%+v, error %v", f, err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	defer s.Stop()
	for _, c := range []struct {
		after time.Duration
		left  int
	}{{time.Minute - 1, 2}, {1, 1}, {time.Hour - time.Minute - 1, 1}, {1, 0}} {
		now = now.Add(c.after)
		s.Sweep()
		if list, _ := s.Files("a", "", "", 9); len(list) != c.left || s.HasFile(late.ID) != (c.left > 0) {
			t.Errorf("at %v: %d files, want %d", now.Unix(), len(list), c.left)
		}
	}
	if used, _ := s.Used(); used != 0 {
		t.Errorf("%d bytes are left", used)
	}
}

// A journal with a line that its input does not have, or twice, or with anything else, is refused.
func TestJournalsOfOtherInputsAreRefused(t *testing.T) {
	r := Result{Succeeded, []byte("{}")}
	one := string(appendEntry(nil, 0, r))
	for name, c := range map[string]struct {
		text string
		ok   bool
	}{
		"one line":        {one, true},
		"a line twice":    {one + one, false},
		"another line":    {string(appendEntry(nil, 2, r)), false},
		"the last line":   {string(appendEntry(nil, 1, r)), true},
		"another class":   {strings.Replace(one, "s", "q", 1), false},
		"no number":       {"x" + one[1:], false},
		"no space":        {one[:headBytes-1] + "x" + one[headBytes:], false},
		"a short line":    {"x\n", false},
		"an empty result": {string(appendEntry(nil, 0, Result{Succeeded, nil})), true},
	} {
		o := Options{Dir: t.TempDir()}
		s := open(t, o)
		b := create(t, s, "a", lines(2))
		path := s.data(b.Output)
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(o)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrFolder) {
			t.Errorf("%s: error %v", name, err)
		}
		if err == nil {
			if st := s.Stats(); st.Left != 1 {
				t.Errorf("%s: %d lines are left", name, st.Left)
			}
			s.Stop()
		}
	}
}

// Lines of the tenant with the fewest running lines run first, then those of the oldest batch, then those of the lowest
// id. A batch whose files cannot be written runs no more lines, and the line is run again when the folder is opened.
func TestTheOrderOfLines(t *testing.T) {
	of := func(tenant string, created int64, id string) *job {
		return &job{Batch: Batch{Tenant: tenant, Created: time.Unix(created, 0), ID: id}}
	}
	running := map[string]int{"a": 2, "b": 1}
	order := []*job{of("c", 9, "z"), of("b", 3, "y"), of("b", 3, "z"), of("b", 4, "x"), of("a", 1, "a")}
	for i, x := range order {
		for k, y := range order {
			if i != k && before(x, y, running) != (i < k) {
				t.Errorf("%+v and %+v", x.Batch, y.Batch)
			}
		}
	}
	o := Options{Dir: t.TempDir()}
	s := open(t, o)
	create(t, s, "a", lines(2))
	fault := errors.New("fault")
	s.runNext(runner(func(context.Context, Line) (Result, error) { return Result{}, fault }))
	if j, _ := s.choose(); j != nil {
		t.Error("a batch that cannot continue has a line to run")
	}
	if st := s.Stats(); st.Left != 2 || st.Flying != 0 {
		t.Errorf("%+v", st)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	defer s.Stop()
	for range 3 {
		s.runNext(succeed)
	}
	if st := s.Stats(); st.Batches[Completed] != 1 || st.Lines[Succeeded] != 2 {
		t.Errorf("%+v", st)
	}
}

// A running line is cancelled when its batch expires, although no other line of the batch waits and a batch that
// expires later has waiting lines.
func TestRunningLinesEndWithTheirBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{Workers: 2})
		began := make(chan struct{}, 2)
		s.Start(runner(func(ctx context.Context, l Line) (Result, error) {
			began <- struct{}{}
			<-ctx.Done()
			return Result{}, ctx.Err()
		}))
		defer s.Stop()
		f := upload(t, s, "", lines(1))
		b, err := s.Create(New{Input: f.ID, Window: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		<-began
		create(t, s, "", lines(3))
		<-began
		if b = wait(t, s, b); b.State != Expired || b.Counts.Expired != 1 {
			t.Errorf("%+v", b)
		}
	})
}
