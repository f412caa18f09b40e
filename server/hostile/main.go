// Command hostile tests a server process with invalid requests, disconnecting clients and kills (`make torture`). In
// each round it starts the server, sends requests, checks that all resources were released, and ends the server with
// TERM or KILL while requests run.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"sparrow/internal/process"
)

func main() {
	duration := flag.Duration("duration", time.Minute, "how long to run; a round that has begun is completed")
	round := flag.Duration("round", 15*time.Second, "how long clients send to one server")
	workers := flag.Int("workers", 8, "number of concurrent clients")
	seed := flag.Uint64("seed", 0, "seed of the clients' requests; 0 takes one from the time")
	binary := flag.String("binary", "", "a server to use; empty builds one")
	beside := flag.String("beside", "", "instead measure a short question next to a mix of requests: all, together or "+
		"its name")
	asks := flag.Int("asks", 40, "how often the question is asked with -beside")
	flag.Parse()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *beside != "" {
		if err := withProgram(ctx, *binary, func(p process.Program) error {
			return besides(ctx, p, *beside, *seed, *asks)
		}); err != nil {
			fmt.Printf("hostile: %v\n", err)
			os.Exit(1)
		}
		return
	}
	if err := withProgram(ctx, *binary, func(p process.Program) error {
		return trials(ctx, p, *seed, *workers, *round, *duration)
	}); err != nil {
		fmt.Printf("hostile: %v\nrepeat it with:\n\tgo run ./server/hostile -seed %d -workers %d -round %v "+
			"-duration %v\n", err, *seed, *workers, *round, *duration)
		os.Exit(1)
	}
}

// withProgram calls run with the server's program; if binary is empty, it builds the program.
func withProgram(ctx context.Context, binary string, run func(process.Program) error) error {
	dir, err := os.MkdirTemp("", "sparrow-hostile-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := process.Program{Path: binary, Logs: dir}
	if binary == "" {
		if program, err = process.Sparrow(ctx, dir); err != nil {
			return err
		}
	}
	return run(program)
}

func trials(ctx context.Context, program process.Program, seed uint64, workers int, round,
	duration time.Duration) error {
	fmt.Printf("hostile: seed %d, %d clients\n", seed, workers)
	draw := rand.New(rand.NewPCG(seed, 1))
	var all tally
	begun, rounds := time.Now(), 0
	for ; time.Since(begun) < duration && ctx.Err() == nil; rounds++ {
		b := &trial{program: program, draw: draw, workers: workers, length: round, tally: &all}
		if err := b.run(ctx, rounds); err != nil {
			return fmt.Errorf("round %d: %w", rounds, err)
		}
	}
	fmt.Printf("%.0f s: %d rounds, %v\n", time.Since(begun).Seconds(), rounds, &all)
	return ctx.Err()
}
