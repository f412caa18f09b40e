// Command cluster runs servers of the model inside the binary behind routers that people use, pinned, and prints a line
// for each thing that must hold: prefixes are found again, load is even, a worker that dies costs its own streams, one
// that drains costs none, and an index of cached prefixes knows what the cache knows.
//
// Routers are installed once, as the clients of server/clienttest/matrix are. Where they are not to be had, one line
// says so. Arguments name the parts to run: manifests, index, tiers, prefixes, balance, accidents, others. The exit
// status is 1 when something failed, and 0 otherwise.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"sparrow/internal/pinned"
)

// lock lists the routers and what they need.
//
//go:embed lock.txt
var lock []byte

// hashes computes block hashes as Dynamo's router does.
//
//go:embed hashes.py
var hashes []byte

// Bounds of what is started.
const (
	installTime = 10 * time.Minute
	startTime   = time.Minute
	stopTime    = time.Minute
)

// model is what the model inside the binary is called.
const model = "sparrow-tiny"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	failed, err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

// stage is where everything runs.
type stage struct {
	python string
	binary string
	work   string // folder for logs
	failed int
}

func run(ctx context.Context) (failed bool, err error) {
	home, err := pinned.Cache()
	if err != nil {
		return false, err
	}
	limited, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	python, err := pinned.Python(limited, home, "cluster", lock)
	if err != nil {
		fmt.Printf("skipped: routers and indexers: %v\n", err)
		return false, nil
	}
	work, err := os.MkdirTemp("", "sparrow-cluster-")
	if err != nil {
		return false, err
	}
	s := &stage{python: python, work: work, binary: filepath.Join(work, "sparrow.exe")}
	defer func() {
		if s.failed == 0 && err == nil {
			os.RemoveAll(work)
		} else {
			fmt.Printf("logs are in %s\n", work)
		}
	}()
	build := exec.CommandContext(ctx, "go", "build", "-o", s.binary, "sparrow/cmd/sparrow")
	if out, err := build.CombinedOutput(); err != nil {
		return false, fmt.Errorf("go build: %w\n%s", err, out)
	}
	all := map[string]func(context.Context) error{"index": s.index, "prefixes": s.prefixes, "balance": s.balance,
		"accidents": s.accidents, "others": s.others, "manifests": s.manifests,
		"tiers": s.tiers}
	names := os.Args[1:]
	if len(names) == 0 {
		names = []string{"manifests", "index", "tiers", "prefixes", "balance", "accidents", "others"}
	}
	for _, name := range names {
		part, ok := all[name]
		if !ok {
			return true, fmt.Errorf("there is no part %q", name)
		}
		begun := time.Now()
		if err := part(ctx); err != nil {
			return true, fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("      %s took %v\n", name, time.Since(begun).Round(time.Second))
	}
	return s.failed > 0, nil
}

// check prints one result.
func (s *stage) check(what, figure string, err error) {
	if err != nil {
		s.failed++
		text, _, _ := strings.Cut(err.Error(), "\n")
		fmt.Printf("FAIL  %-62s %s\n", what, text)
		return
	}
	fmt.Printf("ok    %-62s %s\n", what, figure)
}

// want is an error unless ok.
func want(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// process is a program that was started, with its output in a file.
type process struct {
	name string
	cmd  *exec.Cmd
	log  *os.File
	done chan struct{} // closed when it has ended
	err  error         // of its end
}

func (s *stage) start(name, program string, args ...string) (*process, error) {
	log, err := os.Create(filepath.Join(s.work, name+".log"))
	if err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: exec.Command(program, args...), log: log, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go func() {
		p.err = p.cmd.Wait()
		log.Close()
		close(p.done)
	}()
	return p, nil
}

// end waits for a process to end after a signal.
func (p *process) end(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-time.After(stopTime):
		p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s still ran %v after %v", p.name, stopTime, sig)
	}
}

// kill ends a process at once.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.done
}
