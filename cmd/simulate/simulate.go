package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sparrow/internal/sim/fleet"
	"sparrow/internal/textfile"
)

// simulateFlags holds all flags of the program.
type simulateFlags struct {
	config fleet.Config
	policy string
	trace  string
	kills  []string
	asJSON bool
}

func simulateCommand() *cobra.Command {
	var f simulateFlags
	c := &cobra.Command{
		Use:   "simulate",
		Short: "Simulate replicas, to choose their number and routing, and to see the effect of a failure",
		Long: `Simulate replays a trace of conversations against replicas on a virtual clock: scheduler and cache are the real ones, and a formula gives the time of a pass. It prints
throughput, times to the first token and the share of prompts found in caches. The same trace, costs and seed give the same result on every machine.`,
		Example: `  simulate trace --sessions 500 --rate 4 > trace.jsonl
  simulate --trace trace.jsonl --replicas 8 --policy prefix
  simulate --trace trace.jsonl --replicas 8 --kill 3@60s+30s --json`,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return f.simulate(cmd) },
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&f.trace, "trace", "", "file of the trace, JSON lines; - reads standard input")
	s.IntVar(&f.config.Replicas, "replicas", 1, "number of servers")
	s.StringVar(&f.policy, "policy", string(fleet.Prefix),
		"how a router chooses a server: "+strings.Join(policyNames(), ", "))
	s.StringSliceVar(&f.kills, "kill", nil,
		"servers that fail, each as `number@time`; +time is the time until it works again, as in 3@60s+30s")
	s.IntVar(&f.config.CacheTokens, "cache-tokens", 65536, "cache of each server, in tokens")
	s.IntVar(&f.config.ContextTokens, "context", 16384, "longest sequence in tokens")
	s.IntVar(&f.config.StepTokens, "step-tokens", 512, "maximum number of new tokens of one step")
	s.IntVar(&f.config.MaxRunning, "max-running", 64, "maximum number of sequences in a batch")
	s.IntVar(&f.config.MaxQueue, "max-queue", 2048, "maximum number of waiting sequences")
	s.DurationVar(&f.config.Cost.Pass, "cost-pass", 10*time.Millisecond, "time of a step")
	s.DurationVar(&f.config.Cost.Row, "cost-row", 100*time.Microsecond, "time that each prompt token of a step adds")
	s.DurationVar(&f.config.Cost.Decode, "cost-decode", 200*time.Microsecond,
		"time that each sequence that decodes adds to a step")
	s.DurationVar(&f.config.Cost.Keys, "cost-keys", 5*time.Microsecond,
		"time that each thousand keys before a step's tokens add")
	s.Float64Var(&f.config.Capacity, "capacity", 0,
		"how many servers a shared machine can serve at full speed; 0 means one machine per server")
	s.Uint64Var(&f.config.Seed, "seed", 1, "seed of tokens, and of choices between equally good servers")
	s.BoolVar(&f.asJSON, "json", false, "print JSON")
	c.AddCommand(traceCommand(), costsCommand(), replayCommand())
	return c
}

func policyNames() []string {
	var names []string
	for _, p := range fleet.Policies() {
		names = append(names, string(p))
	}
	return names
}

func (f *simulateFlags) simulate(cmd *cobra.Command) (err error) {
	if f.config.Policy, err = fleet.ParsePolicy(f.policy); err != nil {
		return fmt.Errorf("simulate: %w", err)
	}
	for _, k := range f.kills {
		d, err := parseDeath(k)
		if err != nil {
			return fmt.Errorf("simulate: --kill %q: %w", k, err)
		}
		f.config.Deaths = append(f.config.Deaths, d)
	}
	sessions, err := readTrace(cmd.InOrStdin(), f.trace)
	if err != nil {
		return fmt.Errorf("simulate: %w", err)
	}
	report, err := fleet.Run(f.config, sessions)
	if err != nil {
		return fmt.Errorf("simulate: %w", err)
	}
	if f.asJSON {
		return writeJSON(cmd.OutOrStdout(), report)
	}
	return report.Print(cmd.OutOrStdout())
}

func readTrace(stdin io.Reader, name string) ([]fleet.Session, error) {
	if name == "" {
		return nil, fmt.Errorf("no trace was given; give a file with --trace, or make one with 'simulate trace'")
	}
	if name == "-" {
		return fleet.ReadTrace(stdin)
	}
	file, err := textfile.Open(name)
	if err != nil {
		if errors.Is(err, textfile.ErrNotText) {
			err = fmt.Errorf("%w, or - for standard input", err)
		}
		return nil, err
	}
	defer file.Close()
	return fleet.ReadTrace(file)
}

// parseDeath parses "number@time" or "number@time+time": the number of a replica, when it stops, and for how long.
func parseDeath(text string) (d fleet.Death, err error) {
	number, at, found := strings.Cut(text, "@")
	if !found {
		return d, fmt.Errorf("want number@time, such as 3@60s, or 3@60s+30s for a server that works again after 30 s")
	}
	at, back, comes := strings.Cut(at, "+")
	if d.Replica, err = strconv.Atoi(number); err == nil {
		d.At, err = time.ParseDuration(at)
	}
	if err == nil && comes {
		d.Back, err = time.ParseDuration(back)
	}
	return d, err
}

func traceCommand() *cobra.Command {
	var l fleet.Load
	c := &cobra.Command{
		Use:   "trace",
		Short: "Write a random trace of conversations of several turns to standard output",
		Example: `  simulate trace --sessions 500 --rate 4 --turns 6 > trace.jsonl
  simulate trace --systems 3 --system-tokens 2000 --seed 7 > trace.jsonl`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if l.Sessions < 1 || l.Sessions > 1<<20 || !(l.Rate > 0) || l.Turns < 1 || l.NewTokens < 1 ||
				l.OutputTokens < 1 || l.SystemTokens < 0 || !(l.Think >= 0) {
				return fmt.Errorf("simulate trace: %+v: want 1 to %d sessions, at least one turn and one token, a "+
					"positive rate, and lengths and times of 0 or more", l, 1<<20)
			}
			w := bufio.NewWriter(cmd.OutOrStdout())
			if err := fleet.WriteTrace(w, fleet.Generate(l)); err != nil {
				return err
			}
			return w.Flush()
		},
	}
	s := c.Flags()
	s.SortFlags = false
	s.IntVar(&l.Sessions, "sessions", 100, "conversations")
	s.Float64Var(&l.Rate, "rate", 2, "conversations that begin in a second, on average")
	s.IntVar(&l.Turns, "turns", 5, "turns of a conversation, on average")
	s.Float64Var(&l.Think, "think", 5, "seconds between an answer and the next question, on average")
	s.IntVar(&l.Systems, "systems", 4, "number of different system prompts")
	s.IntVar(&l.SystemTokens, "system-tokens", 800, "tokens of each system prompt")
	s.IntVar(&l.NewTokens, "new-tokens", 80, "tokens of a question, on average")
	s.IntVar(&l.OutputTokens, "output-tokens", 150, "tokens of an answer, on average")
	s.IntVar(&l.Tenants, "tenants", 1, "number of tenants; tenants do not share cached prompts")
	s.Uint64Var(&l.Seed, "seed", 1, "seed of all random choices")
	return c
}
