package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"sparrow/internal/sim/fleet"
)

func costsCommand() *cobra.Command {
	var urls []string
	var key string
	var prompt int
	c := &cobra.Command{
		Use:   "costs",
		Short: "Measure the step times of real servers and print them as flags of simulate",
		Long: `Costs sends requests to the first server alone and fits the costs of its steps. Then it sends requests to all servers at once, to measure how many of them a shared machine can serve at full speed.
The servers must have no other work. It prints flags for simulate.`,
		Example: `  simulate costs --server http://127.0.0.1:8001
  simulate costs --server http://127.0.0.1:8001 --server http://127.0.0.1:8002 --prompt-tokens 4000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(urls) == 0 {
				return errors.New("simulate costs: no servers: name at least one with --server")
			}
			if prompt < 1 {
				return fmt.Errorf("simulate costs: --prompt-tokens %d: want at least 1", prompt)
			}
			m, err := fleet.Measure(cmd.Context(), urls, key, prompt)
			if err != nil {
				return fmt.Errorf("simulate costs: %w", err)
			}
			i := &m.Info
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "--cost-pass %v --cost-row %v --cost-decode %v --cost-keys %v "+
				"--replicas %d --capacity %.2f --step-tokens %d --max-running %d --max-queue %d --cache-tokens %d "+
				"--context %d\n", m.Cost.Pass, m.Cost.Row, m.Cost.Decode, m.Cost.Keys, len(urls), m.Capacity,
				i.StepTokens, i.MaxRunning, i.MaxQueue, i.CacheTokens, i.ContextTokens)
			return err
		},
	}
	s := c.Flags()
	s.SortFlags = false
	s.StringSliceVar(&urls, "server", nil, "`URL` of a server; repeat the flag for each server")
	s.StringVar(&key, "key", "", "bearer key of the servers")
	s.IntVar(&prompt, "prompt-tokens", 512, "tokens of a long prompt; give about as many as are computed for a "+
		"prompt of the trace")
	return c
}

func replayCommand() *cobra.Command {
	var s fleet.Servers
	var trace, policy string
	var asJSON bool
	c := &cobra.Command{
		Use:     "replay",
		Short:   "Send the conversations of a trace to real servers in real time, to compare with a simulation",
		Example: `  simulate replay --trace trace.jsonl --server http://127.0.0.1:8001 --server http://127.0.0.1:8002`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if s.Policy, err = fleet.ParsePolicy(policy); err != nil {
				return fmt.Errorf("simulate replay: %w", err)
			}
			if len(s.URLs) == 0 {
				return fmt.Errorf("simulate replay: no servers: name at least one with --server")
			}
			sessions, err := readTrace(cmd.InOrStdin(), trace)
			if err != nil {
				return fmt.Errorf("simulate replay: %w", err)
			}
			report, err := fleet.Replay(cmd.Context(), s, sessions)
			if err != nil {
				return fmt.Errorf("simulate replay: %w", err)
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), report)
			}
			return report.Print(cmd.OutOrStdout())
		},
	}
	fl := c.Flags()
	fl.SortFlags = false
	fl.StringVar(&trace, "trace", "", "file of the trace, JSON lines; - reads standard input")
	fl.StringSliceVar(&s.URLs, "server", nil, "`URL` of a server; repeat the flag for each server")
	fl.StringVar(&s.Key, "key", "", "bearer key of the servers")
	fl.StringVar(&policy, "policy", string(fleet.Prefix), "how to choose a server: "+strings.Join(policyNames(), ", "))
	fl.Uint64Var(&s.Seed, "seed", 1, "seed of tokens, and of choices between equally good servers")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
