package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// stream returns a reader of the events as JSON lines, as `go test -json` prints them.
func stream(t *testing.T, events ...event) *strings.Reader {
	t.Helper()
	var b strings.Builder
	for _, e := range events {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	return strings.NewReader(b.String())
}

var (
	passes = []event{
		{Action: "start", Package: "a"}, {Action: "run", Package: "a", Test: "TestX"},
		{Action: "output", Package: "a", Test: "TestX", Output: "    x_test.go:1: a note\n"},
		{Action: "pass", Package: "a", Test: "TestX"},
		{Action: "output", Package: "a", Test: "TestY", Output: "    y_test.go:7: needs a GPU: no driver\n"},
		{Action: "output", Package: "a", Test: "TestY", Output: "--- SKIP: TestY (0.00s)\n"},
		{Action: "skip", Package: "a", Test: "TestY"},
		{Action: "output", Package: "a", Test: "TestZ", Output: "    y_test.go:7: needs a GPU: it is too old\n"},
		{Action: "skip", Package: "a", Test: "TestZ"},
		{Action: "output", Package: "a", Output: "PASS\n"}, {Action: "output", Package: "a", Output: "ok  \ta\t1s\n"},
		{Action: "pass", Package: "a"},
		{Action: "output", Package: "b", Output: "?   \tb\t[no test files]\n"}, {Action: "skip", Package: "b"},
	}
	fails = []event{
		{Action: "output", Package: "c", Test: "TestW", Output: "    w_test.go:2: wrong\n"},
		{Action: "fail", Package: "c", Test: "TestW"},
		{Action: "output", Package: "c", Output: "FAIL\tc\t1s\n"}, {Action: "fail", Package: "c"},
	}
	panics = []event{
		{Action: "output", Package: "d", Test: "TestV", Output: "panic: test timed out\n"},
		{Action: "output", Package: "d", Output: "FAIL\td\t1s\n"}, {Action: "fail", Package: "d"},
	}
	unbuilt = []event{
		{Action: "build-output", ImportPath: "e", Output: "e.go:1: syntax error\n"},
		{Action: "build-fail", ImportPath: "e"},
		{Action: "output", Package: "e", Output: "FAIL\te [build failed]\n"}, {Action: "fail", Package: "e"},
	}
)

func TestWhatPassedAndWhatWasSkipped(t *testing.T) {
	var out strings.Builder
	s := newSummary(&out)
	if s.read(stream(t, passes...)) || !s.end() {
		t.Error("it fails")
	}
	want := "ok  \ta\t1s\n2 tests were skipped:\n    2  needs a GPU\n" +
		"everything passed: 1 tests of 1 packages, 2 skipped\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestFailuresAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		events []event
		says   []string
	}{
		"a test":  {fails, []string{"w_test.go:2: wrong", "c TestW"}},
		"a panic": {panics, []string{"panic: test timed out", "\td\n"}},
		"a build": {unbuilt, []string{"e.go:1: syntax error", "e is not built"}},
	} {
		var out strings.Builder
		s := newSummary(&out)
		s.read(stream(t, passes...))
		if !s.read(stream(t, c.events...)) {
			t.Errorf("%s: not seen", name)
		}
		printed := out.String()
		if s.end() || strings.Contains(out.String(), "everything passed") {
			t.Errorf("%s: it passes", name)
		}
		if !strings.Contains(printed, c.says[0]) || !strings.Contains(out.String(), c.says[1]) {
			t.Errorf("%s: %q, want %q", name, out.String(), c.says)
		}
	}
}

// Output that is not an event, such as the go command's message about an unknown flag, is printed.
func TestOtherOutputIsShown(t *testing.T) {
	var out strings.Builder
	if newSummary(&out).read(strings.NewReader("flag provided but not defined: -x\n")); !strings.Contains(out.String(),
		"-x") {
		t.Errorf("%q", out.String())
	}
}
