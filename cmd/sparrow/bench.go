package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"sparrow/bench/load"
	"sparrow/server"
)

func benchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast things are",
		Example: `  sparrow bench serve
  sparrow bench serve --streams 8 --prompt-tokens 16000 --output-tokens 1 --concurrency 1 --requests 3
  sparrow bench serve --url http://127.0.0.1:8080 --rate 4 --requests 100
  sparrow bench kernels
  sparrow bench model`,
	}
	c.AddCommand(benchServeCommand(), benchKernelsCommand(), benchModelCommand())
	return c
}

// benchServeFlags is everything `sparrow bench serve` can be told.
type benchServeFlags struct {
	engineFlags
	url, key, prompt, output string
	requests, concurrency    int
	rate                     float64
	prefix, groups, streams  int
	streamChoices            int
	streamKey                string
	duration, timeout        time.Duration
	seed                     uint64
	allowRemote, eos, asJSON bool
	dummy                    bool
	longest                  func() time.Duration // the longest step of the server here
}

func benchServeCommand() *cobra.Command {
	var f benchServeFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Send a load to a server and measure latency and throughput",
		Long: `Bench serve sends completions and prints percentiles of the time to the first token, between tokens and to the end, and tokens per second.
Without --url it serves a model itself, over HTTP on this machine. Requests arrive as a Poisson process (--rate), or a fixed number is kept
in flight (--concurrency). Prompts are made of token ids drawn from a seed, so their lengths are exact and two runs send the same.`,
		Example: `  sparrow bench serve
  sparrow bench serve --model /tmp/mini --concurrency 16 --prompt-tokens 2048 --output-tokens uniform:32-256
  sparrow bench serve --rate 2.5 --requests 200 --shared-prefix 1024 --groups 4 --json
  sparrow bench serve --url http://127.0.0.1:8080 --key secret --duration 60s --requests 100000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&f.url, "url", "", "server to measure; without it one is started here")
	s.StringVar(&f.key, "key", "", "bearer key for --url")
	s.BoolVar(&f.allowRemote, "allow-remote", false, "let --url be another machine")
	s.IntVar(&f.requests, "requests", 64, "requests to send")
	s.Float64Var(&f.rate, "rate", 0, "mean arrivals per second, whether or not earlier requests are answered")
	s.IntVar(&f.concurrency, "concurrency", 0, "requests kept in flight; 8 when there is no --rate")
	s.StringVar(&f.prompt, "prompt-tokens", "256",
		"length of each prompt after its shared prefix: a number, or uniform:A-B")
	s.StringVar(&f.output, "output-tokens", "64", "length of each answer: a number, or uniform:A-B")
	s.IntVar(&f.prefix, "shared-prefix", 0, "tokens that the prompts of a group begin with in common")
	s.IntVar(&f.streams, "streams", 0, "streams of short prompts that run beside the load; prints the gaps between "+
		"their tokens")
	s.IntVar(&f.streamChoices, "stream-choices", 1, "choices of each of these streams")
	s.StringVar(&f.streamKey, "stream-key", "", "bearer key of these streams for --url; without it that of --key")
	s.IntVar(&f.groups, "groups", 1, "groups of prompts that share a prefix")
	s.DurationVar(&f.duration, "duration", 0, "stop sending after this time; what is in flight is still answered")
	s.DurationVar(&f.timeout, "timeout", 0, "most time of one request; 0 is no bound")
	s.Uint64Var(&f.seed, "seed", 1, "seed of prompts, lengths and arrivals")
	s.BoolVar(&f.eos, "stop-at-eos", false,
		"let answers end where the model ends them, instead of at their full length")
	s.BoolVar(&f.asJSON, "json", false, "print JSON")
	s.BoolVar(&f.dummy, "dummy", false, "--model is a shape, as in bench model --dummy: its weights are drawn on the "+
		"device, without files")
	f.engineFlags.add(s)
	f.addServing(s)
	return c
}

func (f *benchServeFlags) run(cmd *cobra.Command) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	if f.url != "" {
		if err := f.refuse(cmd.Flags()); err != nil {
			return fmt.Errorf("bench serve: %w", err)
		}
		if f.dummy {
			return errors.New("bench serve: --dummy cannot change the server at --url; leave one of them out")
		}
		return f.measure(cmd, o)
	}
	if err := onlyWithURL(cmd.Flags(), "key", "allow-remote", "stream-key"); err != nil {
		return fmt.Errorf("bench serve: %w", err)
	}
	return f.serveHere(cmd, o)
}

func (f *benchServeFlags) options() (load.Options, error) {
	o := load.Options{
		URL: f.url, Model: f.name, Key: f.key, AllowRemote: f.allowRemote, Requests: f.requests, Rate: f.rate,
		Concurrency: f.concurrency, Duration: f.duration, Timeout: f.timeout, SharedPrefix: f.prefix, Groups: f.groups,
		StopAtEOS: f.eos, Seed: f.seed, Streams: f.streams,
		StreamChoices: f.streamChoices, StreamKey: f.streamKey,
	}
	if f.rate == 0 && f.concurrency == 0 {
		o.Concurrency = 8
	}
	var err1, err2 error
	if o.Prompt, err1 = load.ParseLengths(f.prompt); err1 != nil {
		err1 = fmt.Errorf("--prompt-tokens: %w", err1)
	}
	if o.Output, err2 = load.ParseLengths(f.output); err2 != nil {
		err2 = fmt.Errorf("--output-tokens: %w", err2)
	}
	return o, errors.Join(err1, err2)
}

// serveHere starts a server for the length of the load.
func (f *benchServeFlags) serveHere(cmd *cobra.Command, o load.Options) (err error) {
	o.URL = "http://127.0.0.1" // to be replaced; everything else is checked before a model is loaded
	if err := o.Validate(); err != nil {
		return err
	}
	l, err := listenTCP(cmd.Context(), "127.0.0.1", 0)
	if err != nil {
		return err
	}
	defer l.Close() // the server has closed it already unless loading failed
	if f.dummy {
		if f.drawn, err = drawn(f.model, f.seed, nil); err != nil {
			return fmt.Errorf("bench serve: --dummy: %w", err)
		}
	}
	e, err := f.open(cmd, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeNow(e)) }()
	s, err := server.New(server.Adapt(e), server.Options{Grace: time.Second})
	if err != nil {
		return err
	}
	if !f.asJSON {
		fmt.Fprintf(cmd.OutOrStdout(), "model    %s: %s\n", e.Info().Name, f.source())
		describe(cmd.OutOrStdout(), e.Info())
		fmt.Fprintln(cmd.OutOrStdout())
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(cmd.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	o.URL, o.Model = "http://"+l.Addr().String(), e.Info().Name
	f.longest = func() time.Duration { return e.Stats().LongestGap }
	err = f.measure(cmd, o)
	stop()
	return errors.Join(err, <-ended)
}

// measure sends the load and prints the report. An error of single requests is part of the report; none answered at
// all is a failure.
func (f *benchServeFlags) measure(cmd *cobra.Command, o load.Options) error {
	bar := newProgress(cmd.ErrOrStderr(), "requests")
	o.OnDone = func(done, total int) { bar.set(int64(done), int64(total), fmt.Sprintf("%d of %d", done, total)) }
	r, err := load.Run(cmd.Context(), o)
	bar.end()
	if err != nil {
		return err
	}
	if r.Beside != nil && f.longest != nil {
		r.Beside.LongestStep = float64(f.longest()) / float64(time.Millisecond)
	}
	if f.asJSON {
		err = writeJSON(cmd.OutOrStdout(), r)
	} else {
		err = r.Print(cmd.OutOrStdout())
	}
	if err == nil && r.Answered == 0 {
		return errReported
	}
	return err
}
