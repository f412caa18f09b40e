package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// event is a line of the output of go test -json.
type event struct {
	Action     string
	Package    string
	ImportPath string // path of the package that is built
	Test       string
	Output     string
	Elapsed    float64 // seconds
}

// summary is the combined result of several runs of go test.
type summary struct {
	mu       sync.Mutex
	out      io.Writer
	packages int
	passed   int
	skipped  map[string]int // number of skipped tests by reason
	failed   []string
}

func newSummary(out io.Writer) *summary { return &summary{out: out, skipped: map[string]int{}} }

// read reads the events of one run until its end and reports whether a test, a package or a build failed.
func (s *summary) read(from io.Reader) (failed bool) {
	printed := map[event]*strings.Builder{} // output of tests that have not ended, by package and test
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		var e event
		switch {
		case line == "":
		case json.Unmarshal([]byte(line), &e) != nil:
			s.print(line)
		default:
			failed = s.take(e, printed) || failed
		}
		if err != nil {
			return failed
		}
	}
}

// take processes an event and reports whether it is the failure of a test, a package or a build.
func (s *summary) take(e event, printed map[event]*strings.Builder) (failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := event{Package: e.Package, ImportPath: e.ImportPath, Test: e.Test}
	text := printed[key]
	switch e.Action {
	case "output", "build-output":
		if text == nil {
			text = &strings.Builder{}
			printed[key] = text
		}
		text.WriteString(e.Output)
		return false
	case "pass", "skip", "fail", "build-fail":
		delete(printed, key)
	default:
		return false
	}
	said := ""
	if text != nil {
		said = text.String()
	}
	switch {
	case e.Action == "fail" && e.Test != "":
		s.failed = append(s.failed, e.Package+" "+e.Test)
		fmt.Fprint(s.out, said)
		return true
	case e.Action == "build-fail":
		s.failed = append(s.failed, e.ImportPath+" is not built")
		fmt.Fprint(s.out, said)
		return true
	case e.Action == "fail":
		s.failed = append(s.failed, e.Package)
		for k, running := range printed { // tests that ended by a panic or the time limit
			if k.Package == e.Package {
				fmt.Fprint(s.out, running.String())
				delete(printed, k)
			}
		}
		fmt.Fprint(s.out, said)
		return true
	case e.Action == "skip" && e.Test != "":
		s.skipped[reason(said)]++
	case e.Action == "pass" && e.Test != "":
		s.passed++
	case e.Action == "pass":
		s.packages++
		fmt.Fprint(s.out, lastLine(said)) // the line with ok, name and time
	}
	return false
}

// print prints output of go test that is not an event.
func (s *summary) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprint(s.out, text)
}

// fails reports whether any test, package, build or run has failed.
func (s *summary) fails() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.failed) > 0
}

// broken records a run that could not be started.
func (s *summary) broken(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, err.Error())
}

// skipLine matches the line that states where and why a test was skipped.
var skipLine = regexp.MustCompile(`(?m)^\s*\S+\.go:\d+: (.+)$`)

// reason returns the reason why a test was skipped, up to a colon: the text after it distinguishes tests that were
// skipped for the same reason.
func reason(said string) string {
	found := skipLine.FindAllStringSubmatch(said, -1)
	if found == nil {
		return "no reason is given"
	}
	why, _, _ := strings.Cut(found[len(found)-1][1], ":")
	return strings.TrimSpace(why)
}

func lastLine(text string) string {
	lines := strings.SplitAfter(strings.TrimRight(text, "\n")+"\n", "\n")
	return lines[len(lines)-2]
}

// end prints the skipped tests and, in the last line, whether everything passed. It returns whether everything
// passed.
func (s *summary) end() bool {
	all := 0
	for _, n := range s.skipped {
		all += n
	}
	if all > 0 {
		fmt.Fprintf(s.out, "%d tests were skipped:\n", all)
		reasons := slices.SortedFunc(maps.Keys(s.skipped), func(a, b string) int {
			if d := s.skipped[b] - s.skipped[a]; d != 0 {
				return d
			}
			return strings.Compare(a, b)
		})
		for _, why := range reasons {
			fmt.Fprintf(s.out, "%5d  %s\n", s.skipped[why], why)
		}
	}
	if len(s.failed) > 0 {
		slices.Sort(s.failed)
		fmt.Fprintf(s.out, "FAILED:\n\t%s\n", strings.Join(s.failed, "\n\t"))
		return false
	}
	fmt.Fprintf(s.out, "everything passed: %d tests of %d packages, %d skipped\n", s.passed, s.packages, all)
	return true
}
