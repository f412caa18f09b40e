package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/spf13/cobra"

	"sparrow"
	"sparrow/sample"
	"sparrow/sim/fleet"
	"sparrow/sim/formula"
)

// costHistory is how many passes are measured at most.
const costHistory = 8192

func costsCommand() *cobra.Command {
	var f engineFlags
	context := 1024
	c := &cobra.Command{
		Use:   "costs",
		Short: "Measure the costs of a model's steps on this machine, as flags of simulate",
		Example: `  sparrow simulate costs
  sparrow simulate costs --model /models/DeepSeek-V3.2 --prompt-tokens 4000`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if context < 1 {
				return fmt.Errorf("simulate costs: --prompt-tokens %d: want at least 1", context)
			}
			f.planHistory, f.draft, f.noPrefixCache = costHistory, "off", true
			e, err := f.open(cmd, nil)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, closeNow(e)) }()
			cost, err := measureCosts(cmd.Context(), e, context)
			if err != nil {
				return fmt.Errorf("simulate costs: %w", err)
			}
			return printCosts(cmd.OutOrStdout(), cost, e.Info())
		},
	}
	s := c.Flags()
	s.SortFlags = false
	s.IntVar(&context, "prompt-tokens", context, "tokens of the prompts that are computed: about as many as a step's "+
		"tokens see in the trace")
	f.add(s)
	return c
}

// measureCosts runs prompts and answers, several numbers of them at once, and fits the times of their steps.
func measureCosts(ctx context.Context, e *sparrow.Engine, tokens int) (formula.Cost, error) {
	greedy := sample.Default()
	greedy.Temperature = 0
	const output = 32
	tokens = min(tokens, e.Info().ContextTokens-output)
	for _, n := range []int{1, 1, 2, 4, 8, 16} {
		if n > e.Info().MaxRunning || n*(tokens+output) > e.Info().CacheTokens {
			break
		}
		errs := make([]error, n)
		var all sync.WaitGroup
		for i := range n {
			r := sparrow.Request{Sampling: greedy, MaxTokens: output, IgnoreEOS: true, Tokens: make([]int32, tokens)}
			for at := range r.Tokens {
				r.Tokens[at] = int32(10 + (at*(i+7)+n)%64)
			}
			all.Go(func() { _, errs[i] = e.Generate(ctx, r) })
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			return formula.Cost{}, err
		}
	}
	var passes []fleet.Pass
	for i, p := range e.Plans() {
		if i < 4 {
			continue // the first steps also make plans
		}
		m := fleet.Pass{Took: p.Took}
		for j := range p.Plan.Segments {
			if s := &p.Plan.Segments[j]; s.Row.DecodeLike() {
				m.Decode += s.Rows
			} else {
				m.Prompt += s.Rows
			}
		}
		passes = append(passes, m)
	}
	return fleet.Fit(passes)
}

func printCosts(w io.Writer, c formula.Cost, i sparrow.Info) error {
	_, err := fmt.Fprintf(w, "--cost-pass %v --cost-row %v --cost-decode %v --cost-keys 0s --step-tokens %d "+
		"--max-running %d --max-queue %d --cache-tokens %d --context %d\n", c.Pass, c.Row, c.Decode, i.StepTokens,
		i.MaxRunning, i.MaxQueue, i.CacheTokens, i.ContextTokens)
	return err
}

func replayCommand() *cobra.Command {
	var s fleet.Servers
	var trace, policy string
	var cacheTokens int
	var asJSON bool
	c := &cobra.Command{
		Use:   "replay",
		Short: "Have the conversations of a trace with real servers, in real time, to compare with a simulation",
		Example: `  sparrow simulate replay --trace trace.jsonl --server http://127.0.0.1:8001 --server http://127.0.0.1:8002 ` +
			`--cache-tokens 8192`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if s.Policy, err = fleet.ParsePolicy(policy); err != nil {
				return fmt.Errorf("simulate replay: %w", err)
			}
			if len(s.URLs) == 0 || cacheTokens < s.PageTokens || s.PageTokens < 1 {
				return fmt.Errorf("simulate replay: %d servers with caches of %d tokens in pages of %d: name at least "+
					"one with --server, and what they were started with", len(s.URLs), cacheTokens, s.PageTokens)
			}
			s.Pages = cacheTokens / s.PageTokens
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
	fl.StringSliceVar(&s.URLs, "server", nil, "`URL` of a server; given once for each")
	fl.StringVar(&s.Model, "name", "sparrow-tiny", "the model's name on the wire")
	fl.StringVar(&policy, "policy", string(fleet.Prefix), fmt.Sprintf("how to choose a server: %v", fleet.Policies()))
	fl.IntVar(&cacheTokens, "cache-tokens", 65536, "cache of each server, in tokens")
	fl.IntVar(&s.PageTokens, "page-tokens", 64, "tokens of a page of its cache")
	fl.Uint64Var(&s.Seed, "seed", 1, "of tokens, and of choices between equals")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
