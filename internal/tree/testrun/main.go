// Command testrun runs `go test` with each of its arguments, a list of flags and packages separated by spaces, and
// prints at the end what passed, how many tests were skipped and why. An argument that begins with "+ " runs in
// parallel with the previous one. Failures are printed at once; after a failed argument, no further arguments are run.
//
//	go run ./internal/tree/testrun "-timeout 60m ./..." "./engine -args -ranks 2" "+ ./engine -args -ranks 4"
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, `usage: testrun "FLAGS PACKAGES" ["+ FLAGS PACKAGES"]...; each is a list for go test`)
		os.Exit(2)
	}
	begun := time.Now()
	s := newSummary(os.Stdout)
	used := run(s, os.Args[1:])
	fmt.Printf("%.1f minutes, %.1f of the processor\n", time.Since(begun).Minutes(), used.Minutes())
	if !s.end() {
		os.Exit(1)
	}
}

// run runs go test with every line and returns the total processor time, including compilation.
func run(s *summary, lines []string) time.Duration {
	var used time.Duration
	var mu sync.Mutex
	var beside sync.WaitGroup
	for i, line := range lines {
		line, plus := strings.CutPrefix(line, "+ ")
		if i > 0 && !plus {
			if beside.Wait(); s.fails() {
				s.print(fmt.Sprintf("not run: %s\n", strings.Join(lines[i:], "; ")))
				break
			}
		}
		beside.Go(func() {
			took := goTest(s, strings.Fields(line))
			mu.Lock()
			defer mu.Unlock()
			used += took
		})
	}
	beside.Wait()
	return used
}

// goTest runs go test once and returns its processor time.
func goTest(s *summary, args []string) time.Duration {
	// -C must come first.
	all := []string{"test", "-json"}
	if len(args) > 1 && args[0] == "-C" {
		all, args = []string{"test", "-C", args[1], "-json"}, args[2:]
	}
	cmd := exec.Command("go", append(all, args...)...)
	if slices.Contains(args, "-race") { // the race detector is C code, so cgo must be enabled
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		cmd.Stderr = cmd.Stdout // output that is not an event is printed unchanged
		err = cmd.Start()
	}
	if err != nil {
		s.broken(fmt.Errorf("go test %s: %w", strings.Join(args, " "), err))
		return 0
	}
	failed := s.read(out)
	_, _ = io.Copy(io.Discard, out) // a closed reader must not stop the tests
	err = cmd.Wait()
	var status *exec.ExitError
	if err != nil && (!failed || !errors.As(err, &status)) {
		s.broken(fmt.Errorf("go test %s: %w", strings.Join(args, " "), err))
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}
