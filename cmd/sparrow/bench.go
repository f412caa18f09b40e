package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sparrow/internal/bench/load"
	"sparrow/server"
)

func benchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure the speed of a server, a model or kernels",
		Example: `  sparrow bench serve
  sparrow bench serve --streams 8 --prompt-tokens 16000 --output-tokens 1 --concurrency 1 --requests 3
  sparrow bench serve --url http://127.0.0.1:8080 --rate 4 --requests 100
  sparrow bench kernels
  sparrow bench model`,
	}
	c.AddCommand(benchServeCommand(), benchKernelsCommand(), benchModelCommand())
	return c
}

// benchServeFlags holds the flags of `sparrow bench serve`.
type benchServeFlags struct {
	engineFlags
	url, key, prompt, output string
	workload, turns, goals   string
	requests                 int
	concurrency              []int
	rate                     []float64
	prefix, groups, streams  int
	streamChoices            int
	streamKey                string
	duration, timeout        time.Duration
	seed                     uint64
	temperature, topP        float64
	allowRemote, eos, asJSON bool
	dummy                    bool
	longest                  func() time.Duration // returns the longest step of the server that runs here
}

func benchServeCommand() *cobra.Command { return new(benchServeFlags).command() }

// command returns the command, whose flags set f.
func (f *benchServeFlags) command() *cobra.Command {
	c := &cobra.Command{
		Use:   "serve",
		Short: "Send a load to a server and measure latency and throughput",
		Long: `Bench serve sends completions and prints percentiles of the time to the first token, between tokens and to the end, and
tokens per second. Without --url it serves a model itself, over HTTP on this machine. Requests are sent as a Poisson
process (--rate), or a fixed number is kept in flight (--concurrency). Several values make a sweep, with one line each.
Prompts are token ids drawn from a seed, so their lengths are exact and two runs send the same prompts. --workload
selects the kind of requests; other flags may change its values:
  random       prompts of 256 tokens, answers of 64
  chat         conversations of 2 to 6 turns in words, sent to chat completions: a common system prompt of 200 words, then 16 to 128 words per turn, answers of 32 to 192 tokens
  long-prefix  each prompt begins with one of 4 documents of 4096 tokens, then a question of 32 to 128 tokens; answers of 64
With --goal the requests that meet the goal are counted (goodput). --url measures any server with OpenAI's interface.`,
		Example: `  sparrow bench serve
  sparrow bench serve --model /tmp/mini --concurrency 16 --prompt-tokens 2048 --output-tokens uniform:32-256
  sparrow bench serve --rate 2.5 --requests 200 --shared-prefix 1024 --groups 4 --json
  sparrow bench serve --workload chat --concurrency 1,4,16 --goal ttft=500ms,tpot=40ms
  sparrow bench serve --url http://127.0.0.1:8080 --key secret --duration 60s --requests 100000`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&f.url, "url", "", "server to measure; without it a server is started")
	s.StringVar(&f.key, "key", "", "bearer key for --url")
	s.BoolVar(&f.allowRemote, "allow-remote", false, "allow --url on another machine")
	s.StringVar(&f.workload, "workload", "random", "kind of load: random, chat or long-prefix")
	s.IntVar(&f.requests, "requests", 64, "requests to send, or conversations, for each value of a sweep")
	s.Float64SliceVar(&f.rate, "rate", nil, "mean number of requests sent per second, also while earlier ones are "+
		"not answered; `several`, such as 1,2,4, make a sweep")
	s.IntSliceVar(&f.concurrency, "concurrency", nil, "requests or conversations kept in flight, 8 when there is no "+
		"--rate; `several`, such as 1,8,64, make a sweep")
	s.StringVar(&f.turns, "turns", "", "turns of each conversation: a number, or uniform:A-B; without it each "+
		"request has one prompt")
	s.StringVar(&f.goals, "goal", "", "latency targets of a good request: ttft, tpot (time per output "+
		"token) and e2e, such as ttft=500ms,tpot=40ms")
	s.StringVar(&f.prompt, "prompt-tokens", "256",
		"length of each prompt after its shared prefix: a number, or uniform:A-B")
	s.StringVar(&f.output, "output-tokens", "64", "length of each answer: a number, or uniform:A-B")
	s.IntVar(&f.prefix, "shared-prefix", 0, "tokens of the prefix that the prompts of a group share")
	s.IntVar(&f.streams, "streams", 0, "streams of short prompts that run during the load; prints the gaps between "+
		"their tokens")
	s.IntVar(&f.streamChoices, "stream-choices", 1, "choices of each stream of --streams")
	s.StringVar(&f.streamKey, "stream-key", "", "bearer key for the streams of --streams; default the key of --key")
	s.IntVar(&f.groups, "groups", 1, "number of groups of prompts; each group shares a prefix")
	s.DurationVar(&f.duration, "duration", 0, "stop sending after this time; requests in flight are completed")
	s.DurationVar(&f.timeout, "timeout", 0, "maximum time of one request; 0 means no limit")
	s.Uint64Var(&f.seed, "seed", 1, "seed of prompts, lengths and arrivals")
	s.Float64Var(&f.temperature, "temperature", 0, "sampling temperature: 0 always takes the most probable token")
	s.Float64Var(&f.topP, "top-p", 0, "probability mass of the tokens to sample from (top_p); 0 means the server's "+
		"default")
	s.BoolVar(&f.eos, "stop-at-eos", false,
		"let the model end its answers, instead of forcing the full length")
	s.BoolVar(&f.asJSON, "json", false, "print JSON")
	s.BoolVar(&f.dummy, "dummy", false, "--model is a shape, as for bench model --dummy: random weights are "+
		"generated on the device, without files")
	f.engineFlags.add(s)
	f.addServing(s)
	return c
}

func (f *benchServeFlags) run(cmd *cobra.Command) error {
	if err := f.apply(cmd.Flags()); err != nil {
		return fmt.Errorf("bench serve: %w", err)
	}
	list, err := f.options()
	if err != nil {
		return err
	}
	if err := errors.Join(onlyWith(cmd.Flags(), f.prefix > 0, "--shared-prefix", "groups"),
		onlyWith(cmd.Flags(), f.streams > 0, "--streams", "stream-choices", "stream-key")); err != nil {
		return fmt.Errorf("bench serve: %w", err)
	}
	if f.url != "" {
		if err := f.refuse(cmd.Flags()); err != nil {
			return fmt.Errorf("bench serve: %w", err)
		}
		if f.dummy {
			return errors.New("bench serve: --dummy cannot change the server at --url; omit one of them")
		}
		return f.measure(cmd, list)
	}
	if err := onlyWith(cmd.Flags(), false, "--url", "key", "allow-remote", "stream-key"); err != nil {
		return fmt.Errorf("bench serve: %w", err)
	}
	return f.serveHere(cmd, list)
}

// workloads maps the name of each workload to the default values of flags.
var workloads = map[string]map[string]string{
	"random": {},
	"chat": {"turns": "uniform:2-6", "shared-prefix": "200", "prompt-tokens": "uniform:16-128",
		"output-tokens": "uniform:32-192"},
	"long-prefix": {"shared-prefix": "4096", "groups": "4", "prompt-tokens": "uniform:32-128"},
}

// apply sets the flags of the workload that the user did not set.
func (f *benchServeFlags) apply(given *pflag.FlagSet) error {
	set, ok := workloads[f.workload]
	if !ok {
		return fmt.Errorf("--workload is %q, want %s", f.workload,
			strings.Join(slices.Sorted(maps.Keys(workloads)), ", "))
	}
	for name, value := range set {
		if flag := given.Lookup(name); !flag.Changed {
			if err := flag.Value.Set(value); err != nil {
				return err
			}
		}
	}
	return nil
}

// options returns one load for each value of a sweep.
func (f *benchServeFlags) options() ([]load.Options, error) {
	o := load.Options{
		URL: f.url, Model: f.name, Key: f.key, AllowRemote: f.allowRemote, Requests: f.requests,
		Duration: f.duration, Timeout: f.timeout, SharedPrefix: f.prefix, Groups: f.groups,
		StopAtEOS: f.eos, Seed: f.seed, Streams: f.streams, Temperature: f.temperature, TopP: f.topP,
		StreamChoices: f.streamChoices, StreamKey: f.streamKey,
	}
	var errs []error
	lengths := func(flag, text string) (l load.Lengths) {
		var err error
		if l, err = load.ParseLengths(text); err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
		}
		return l
	}
	o.Prompt, o.Output = lengths("prompt-tokens", f.prompt), lengths("output-tokens", f.output)
	if f.turns != "" {
		o.Turns = lengths("turns", f.turns)
	}
	var err error
	if o.Goals, err = load.ParseGoals(f.goals); err != nil {
		errs = append(errs, fmt.Errorf("--goal: %w", err))
	}
	if len(f.rate) > 0 && len(f.concurrency) > 0 {
		errs = append(errs, errors.New("--rate and --concurrency cannot be combined; give one"))
	}
	if len(f.rate) == 0 && len(f.concurrency) == 0 {
		f.concurrency = []int{8}
	}
	var list []load.Options
	for _, rate := range f.rate {
		if !(rate > 0) {
			errs = append(errs, fmt.Errorf("--rate %g: want a positive number of requests a second", rate))
		}
		o.Rate = rate
		list = append(list, o)
	}
	for _, n := range f.concurrency {
		o.Concurrency = n
		list = append(list, o)
	}
	for i := range list {
		list[i].Seed += uint64(i) // use other prompts, because those of the previous load are cached
	}
	return list, errors.Join(errs...)
}

// serveHere runs the loads against a server that it starts in this process.
func (f *benchServeFlags) serveHere(cmd *cobra.Command, list []load.Options) (err error) {
	for _, o := range list {
		o.URL = "http://127.0.0.1" // a placeholder, so that all other options are checked before a model is loaded
		if err := o.Validate(); err != nil {
			return err
		}
	}
	l, err := listenTCP(cmd.Context(), "127.0.0.1", 0)
	if err != nil {
		return err
	}
	defer l.Close() // after loading, the server has already closed the engine
	if f.dummy {
		if f.drawn, err = drawn(f.model, f.seed, nil, nil); err != nil {
			return fmt.Errorf("bench serve: --dummy: %w", err)
		}
	}
	if f.maxRunning > 0 { // without --max-running the engine chooses the number
		if err := f.fit(list, f.maxRunning, f.stepTokens, 0); err != nil {
			return err
		}
	}
	defer f.spareProcessor()()
	e, err := f.open(cmd, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeNow(e)) }()
	i := e.Info()
	if err := f.fit(list, i.MaxRunning, i.StepTokens, max(i.Config.LinearGroup-1, 0)); err != nil {
		return err
	}
	s, err := server.New(server.Adapt(e), server.Options{Grace: time.Second})
	if err != nil {
		return err
	}
	if !f.asJSON {
		fmt.Fprintf(cmd.OutOrStdout(), "model    %s: %s\n", e.Info().Name, f.source())
		describe(cmd.OutOrStdout(), e.Info(), &f.deviceFlags)
		fmt.Fprintln(cmd.OutOrStdout())
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(cmd.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	for i := range list {
		list[i].URL, list[i].Model = "http://"+l.Addr().String(), e.Info().Name
	}
	f.longest = func() time.Duration { return e.Stats().LongestGap }
	err = f.measure(cmd, list)
	stop()
	return errors.Join(err, <-ended)
}

// fit returns an error if the background streams leave no running sequence for the requests at the maximum concurrency,
// because requests would then wait. steps is the maximum number of tokens of a step, or 0 if unknown; running sequences
// cannot exceed it less the tokens that are reserved for prompts.
func (f *benchServeFlags) fit(list []load.Options, running, steps, reserved int) error {
	streams := f.streams * max(f.streamChoices, 1)
	if streams == 0 || streams < running {
		return nil
	}
	requests := 1
	for i := range list {
		requests = max(requests, min(list[i].Concurrency, f.requests))
	}
	what := fmt.Sprintf("%d streams", f.streams)
	if f.streamChoices > 1 {
		what += fmt.Sprintf(" of %d choices", f.streamChoices)
	}
	flags := fmt.Sprintf("--max-running %d", streams+requests)
	if least := streams + requests + reserved; steps > 0 && steps < least {
		flags += fmt.Sprintf(" --step-tokens %d", least)
	}
	sent := "1 request"
	if requests > 1 {
		sent = fmt.Sprintf("%d requests at once", requests)
	}
	return fmt.Errorf("bench serve: %s and %s exceed --max-running %d; give %s or fewer streams", what, sent, running,
		flags)
}

// measure sends the loads, one after the other, and prints the reports. Errors of single requests are part of a report;
// if no request succeeds, the command fails.
func (f *benchServeFlags) measure(cmd *cobra.Command, list []load.Options) error {
	var reports []*load.Report
	answered := 0
	for i := range list {
		label := "requests"
		if len(list) > 1 {
			label = fmt.Sprintf("load %d of %d", i+1, len(list))
		}
		bar := newProgress(cmd.ErrOrStderr(), label)
		list[i].OnDone = func(done, total int) {
			bar.set(int64(done), int64(total), fmt.Sprintf("%d of %d", done, total))
		}
		r, err := load.Run(cmd.Context(), list[i])
		bar.end()
		if err != nil {
			return err
		}
		if r.Beside != nil && f.longest != nil {
			r.Beside.LongestStep = float64(f.longest()) / float64(time.Millisecond)
		}
		reports = append(reports, r)
		answered += r.Answered
		if cmd.Context().Err() != nil {
			break
		}
	}
	if err := f.printLoads(cmd.OutOrStdout(), reports); err != nil {
		return err
	}
	switch {
	case cmd.Context().Err() != nil:
		return cmd.Context().Err() // the results so far were printed
	case answered == 0:
		return errReported
	}
	return nil
}

// printLoads writes one report, or the table of a sweep.
func (f *benchServeFlags) printLoads(w io.Writer, reports []*load.Report) error {
	switch {
	case len(reports) == 1 && f.asJSON:
		return writeJSON(w, reports[0])
	case len(reports) == 1:
		return reports[0].Print(w)
	case f.asJSON:
		return writeJSON(w, reports)
	}
	return load.PrintSweep(w, reports)
}
