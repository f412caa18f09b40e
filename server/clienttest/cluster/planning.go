package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"sparrow/internal/sim/fleet"
)

// planning checks that a simulation with measured costs predicts the load of three servers.
func (s *stage) planning(ctx context.Context) error {
	trace := filepath.Join(s.work, "trace.jsonl")
	lines, err := s.simulate(ctx, "trace", "--sessions", "54", "--rate", "9", "--turns", "5", "--system-tokens", "500",
		"--new-tokens", "60", "--output-tokens", "30", "--think", "0.5", "--seed", "3")
	if err == nil {
		err = os.WriteFile(trace, lines, 0o644)
	}
	if err != nil {
		return err
	}
	var costs []string
	for _, policy := range []string{"round-robin", "prefix"} {
		workers, err := s.three(ctx, "planning-"+policy)
		if err != nil {
			return err
		}
		var servers []string
		for _, w := range workers {
			servers = append(servers, "--server", w.URL)
		}
		if costs == nil { // the tokens are different, so none of these prompts is cached
			line, err := s.simulate(ctx, append([]string{"costs", "--prompt-tokens", "300"}, servers...)...)
			if err != nil {
				endAll(workers)
				return err
			}
			costs = strings.Fields(string(line))
			fmt.Printf("      %s", line)
		}
		with := []string{"--trace", trace, "--policy", policy, "--json"}
		real, err := s.report(ctx, append(append([]string{"replay"}, with...), servers...)...)
		endAll(workers)
		if err != nil {
			return err
		}
		planned, err := s.mean(ctx, append(with, costs...))
		if err != nil {
			return err
		}
		figure := fmt.Sprintf("%.1f %%, predicted %.1f %%", 100*real.HitShare, 100*planned.HitShare)
		s.check("simulate "+policy+": hit share within 2 points", figure,
			want(math.Abs(real.HitShare-planned.HitShare) <= .02, "%s", figure))
		figure = fmt.Sprintf("%.0f tokens/s, predicted %.0f", real.TokensPerSecond, planned.TokensPerSecond)
		s.check("simulate "+policy+": throughput within 15 %", figure,
			want(math.Abs(planned.TokensPerSecond/real.TokensPerSecond-1) <= .15, "%s", figure))
	}
	return nil
}

// simulate runs cmd/simulate and returns its output.
func (s *stage) simulate(ctx context.Context, args ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, "go", append([]string{"run", "sparrow/cmd/simulate"}, args...)...).Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("simulate %s: %w: %s", args[0], err, failed.Stderr)
	}
	return out, err
}

// mean averages simulations with several seeds, because simultaneous requests may be routed in any order.
func (s *stage) mean(ctx context.Context, args []string) (m fleet.Report, err error) {
	const seeds = 5
	for seed := range seeds {
		r, err := s.report(ctx, append(args, "--seed", strconv.Itoa(1+seed))...)
		if err != nil {
			return m, err
		}
		m.HitShare += r.HitShare / seeds
		m.TokensPerSecond += r.TokensPerSecond / seeds
	}
	return m, nil
}

func (s *stage) report(ctx context.Context, args ...string) (r fleet.Report, err error) {
	text, err := s.simulate(ctx, args...)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}
