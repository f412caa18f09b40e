// Command cluster tests servers of the built-in model behind common routers of pinned versions, and prints a line for
// each property: cached prefixes are reused, load is balanced, a killed worker loses only its own streams, a draining
// worker loses none, an index of cached prefixes matches the cache, and a simulation predicts the load.
//
// Routers are installed once, like the clients of server/clienttest/matrix. If that fails, one line reports it.
// Arguments are names of parts to run: manifests, index, tiers, prefixes, balance, accidents, others, planning. The
// exit status is 1 if a check failed.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"sparrow/internal/pinned"
	"sparrow/internal/process"
)

// lock is a pip requirements file with pinned versions of the routers and their dependencies.
//
//go:embed lock.txt
var lock []byte

// hashes is a program that computes block hashes as Dynamo's router does.
//
//go:embed hashes.py
var hashes []byte

// Maximum times.
const (
	installTime = 10 * time.Minute
	startTime   = time.Minute
)

// model is the name of the built-in model.
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

// stage holds what all parts share.
type stage struct {
	python  process.Program
	sparrow process.Program
	work    string // folder with log files
	failed  int
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
	s := &stage{python: process.Program{Path: python, Logs: work}, work: work}
	defer func() {
		if s.failed == 0 && err == nil {
			os.RemoveAll(work)
		} else {
			fmt.Printf("logs are in %s\n", work)
		}
	}()
	if s.sparrow, err = process.Sparrow(ctx, work); err != nil {
		return false, err
	}
	all := map[string]func(context.Context) error{"index": s.index, "prefixes": s.prefixes, "balance": s.balance,
		"accidents": s.accidents, "others": s.others, "manifests": s.manifests,
		"planning": s.planning, "tiers": s.tiers}
	names := os.Args[1:]
	if len(names) == 0 {
		names = []string{"manifests", "index", "tiers", "prefixes", "balance", "accidents", "others", "planning"}
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

// check prints the result of one check.
func (s *stage) check(what, figure string, err error) {
	if err != nil {
		s.failed++
		text, _, _ := strings.Cut(err.Error(), "\n")
		fmt.Printf("FAIL  %-62s %s\n", what, text)
		return
	}
	fmt.Printf("ok    %-62s %s\n", what, figure)
}

// want returns an error unless ok.
func want(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}
