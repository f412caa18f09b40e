// Command cluster runs servers of the built-in model behind common routers, pinned, and prints a line for each property
// that must hold: prefixes are found again, load is even, a worker that ends loses only its own streams, a worker that
// drains loses none, an index of cached prefixes matches the cache, and a simulation predicts the load.
//
// Routers are installed once, like the clients of server/clienttest/matrix. If they cannot be installed, one line
// reports that. Arguments name the parts to run: manifests, index, tiers, prefixes, balance, accidents, others,
// planning. The exit status is 1 if something failed, and 0 otherwise.
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

// lock lists the routers and their dependencies.
//
//go:embed lock.txt
var lock []byte

// hashes computes block hashes as Dynamo's router does.
//
//go:embed hashes.py
var hashes []byte

// Timeouts of waits.
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

// stage holds everything that the parts share.
type stage struct {
	python  process.Program
	sparrow process.Program
	work    string // folder for logs
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

// want returns an error unless ok.
func want(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}
