package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"text/tabwriter"
	"time"
)

// Beside holds the measurements of background streams. A gap is the time between two events with tokens of one stream.
type Beside struct {
	Streams int   `json:"streams"`
	Alone   Times `json:"alone_ms"`  // gaps that ended before the load began
	During  Times `json:"during_ms"` // gaps that ended while the load ran
	// TokensPerSecond is the number of events with tokens of all background streams per second of the load.
	TokensPerSecond float64 `json:"events_per_second"`
	// LongestStep is the longest step of the server while streams ran, in milliseconds, if the server reports it.
	LongestStep float64 `json:"longest_step_ms,omitempty"`
}

// Prompt and answer lengths of the background streams in tokens, and time limits for them.
const (
	besidePrompt = 32
	besideOutput = 4096 // maximum tokens of an answer; a stream that ends is started again
	besideAlone  = 2 * time.Second
	besideStart  = time.Minute // maximum time until the next stream receives a token
)

// beside runs background streams until stop is called.
type beside struct {
	caller *caller
	cancel context.CancelFunc
	wait   sync.WaitGroup

	mu      sync.Mutex
	running int // number of streams that have received a token
	gaps    []gap
	failed  error // error of the first stream that has failed
}

type gap struct {
	took  time.Duration
	ended time.Time
}

// startBeside starts the streams, waits until all of them receive tokens, and measures them before the load begins.
func (r *runner) startBeside(ctx context.Context) (*beside, error) {
	key := r.o.StreamKey
	if key == "" {
		key = r.o.Key
	}
	c, err := newCaller(r.o, key)
	if err != nil {
		return nil, err
	}
	c.model = r.caller.model
	ctx, cancel := context.WithCancel(ctx)
	b := &beside{caller: c, cancel: cancel}
	for i := range r.o.Streams {
		b.wait.Go(func() { b.run(ctx, r, i) })
	}
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	begun, since := 0, time.Now()
	for !b.ready(r.o.Streams) {
		if b.err() != nil || ctx.Err() != nil {
			break
		}
		if n := b.begun(); n > begun {
			begun, since = n, time.Now()
		}
		if time.Since(since) > besideStart {
			b.end()
			return nil, fmt.Errorf("load: %w: %d of %d streams have begun, and no further one within %v: the server "+
				"queues "+
				"them; use fewer streams, or allow more concurrent sequences (sparrow serve --max-running, "+
				"--cache-tokens)", ErrQueued, begun, r.o.Streams, besideStart)
		}
		<-poll.C
	}
	alone := time.NewTimer(besideAlone)
	defer alone.Stop()
	select {
	case <-alone.C:
	case <-ctx.Done():
	}
	if err := b.err(); err != nil {
		b.end()
		return nil, fmt.Errorf("load: a stream during the load: %w", err)
	}
	return b, nil
}

// run sends requests for stream i, one after the other, until ctx ends.
func (b *beside) run(ctx context.Context, r *runner, i int) {
	for n := 0; ctx.Err() == nil; n++ {
		seed := math.MaxInt/2 + i + n*r.o.Streams // different from the prompts of the load
		t := r.prompts.task(seed)
		t.prompt, t.output = t.prompt[:min(besidePrompt, len(t.prompt))], besideOutput
		t.choices = r.o.StreamChoices
		first := true
		o := b.caller.follow(ctx, t, func(took time.Duration) {
			b.mu.Lock()
			defer b.mu.Unlock()
			if first && n == 0 {
				b.running++
			}
			first = false
			b.gaps = append(b.gaps, gap{took, time.Now()})
		})
		if o.failure != "" && ctx.Err() == nil {
			b.mu.Lock()
			b.failed = errors.New(o.failure + ": " + o.message)
			b.mu.Unlock()
			return
		}
	}
}

// end stops the streams and waits until they have ended.
func (b *beside) end() {
	b.cancel()
	b.wait.Wait()
	b.caller.Close()
}

func (b *beside) ready(streams int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running == streams {
		b.gaps = b.gaps[:0] // ignore gaps during which other streams started
		return true
	}
	return false
}

// begun returns the number of streams that have received a token.
func (b *beside) begun() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running
}

func (b *beside) err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

// stop ends the streams and summarises their gaps before the load and during it, between the times from and to.
func (b *beside) stop(from, to time.Time) *Beside {
	b.end()
	var alone, during []time.Duration
	for _, g := range b.gaps {
		switch {
		case !g.ended.After(from):
			alone = append(alone, g.took)
		case !g.ended.After(to):
			during = append(during, g.took)
		}
	}
	return &Beside{Streams: b.running, Alone: summarise(alone), During: summarise(during),
		TokensPerSecond: float64(len(during)) / to.Sub(from).Seconds()}
}

func (b *Beside) print(w io.Writer) error {
	fmt.Fprintf(w, "\n%d streams during the load, %.1f events/s\n", b.Streams, b.TokensPerSecond)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "gaps in milliseconds\tmean\tp50\tp90\tp99\tmax\t")
	for _, row := range []struct {
		name string
		t    Times
	}{{"before the load", b.Alone}, {"during the load", b.During}} {
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", row.name, row.t.Mean, row.t.P50, row.t.P90, row.t.P99,
			row.t.Max)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if b.LongestStep > 0 {
		fmt.Fprintf(w, "longest step that streams waited for: %.2f ms\n", b.LongestStep)
	}
	return nil
}
