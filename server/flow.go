package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sparrow"
)

// flowDepth is the maximum number of events that wait for a client. With such a queue, a slow client does not affect
// measured gaps between tokens.
const flowDepth = 64

// flow merges the events of several engine requests, one per prompt, into one channel.
type flow struct {
	items chan item // events of all prompts; closed after the last event
	// ended is called for every choice that ends, even if its last event is not read. Calls come from any goroutine.
	ended  func(prompt int, last *sparrow.Event)
	cancel context.CancelFunc
	pumps  sync.WaitGroup

	streams      []Stream          // streams of all requests
	promptTokens int               // prompt tokens of all requests
	ignored      []sparrow.Ignored // schema keywords that are not enforced in any request
}

// item is an event and the index of its prompt.
type item struct {
	prompt int
	event  sparrow.Event
}

// openFlow submits all requests; if one is refused, it cancels the others.
func openFlow(ctx context.Context, e Engine, requests []sparrow.Request,
	ended func(prompt int, last *sparrow.Event)) (*flow, error) {
	ctx, cancel := context.WithCancel(ctx)
	f := &flow{items: make(chan item, flowDepth), ended: ended, cancel: cancel}
	streams := make([]Stream, 0, len(requests))
	for i := range requests {
		s, err := e.Stream(ctx, requests[i])
		if err != nil {
			cancel()
			f.run(ctx, streams)
			f.pumps.Wait()
			if len(requests) > 1 {
				err = fmt.Errorf("prompt %d of %d: %w", i+1, len(requests), err)
			}
			return nil, err
		}
		streams = append(streams, s)
		f.promptTokens += s.PromptTokens()
		f.ignored = append(f.ignored, s.Ignored()...)
	}
	f.streams = streams
	f.run(ctx, streams)
	go func() {
		f.pumps.Wait()
		close(f.items)
	}()
	return f, nil
}

// run starts a goroutine for each stream.
func (f *flow) run(ctx context.Context, streams []Stream) {
	for i, s := range streams {
		f.pumps.Go(func() { f.pump(ctx, i, s) })
	}
}

// pump forwards the events of a stream to items. After ctx has ended, it drops them, but still reads them to count the
// end of every choice. After a dropped event, later ones are dropped too, because an answer with a gap would look
// complete.
func (f *flow) pump(ctx context.Context, prompt int, s Stream) {
	defer s.Close()
	for dropped := false; ; {
		ev, ok := s.Next()
		if !ok {
			return
		}
		if ev.Finish != "" {
			f.ended(prompt, &ev)
		}
		if dropped {
			continue
		}
		select {
		case f.items <- item{prompt, ev}:
		case <-ctx.Done():
			dropped = true
		}
	}
}

// waited returns the longest time that any of the requests has waited for its first step.
func (f *flow) waited() (longest time.Duration) {
	for _, s := range f.streams {
		longest = max(longest, s.Waited())
	}
	return longest
}

// close cancels running requests and waits until they have ended.
func (f *flow) close() {
	f.cancel()
	f.pumps.Wait()
}

// cause returns the cause of ctx: the server's reason if there is one, otherwise the error of ctx.
func cause(ctx context.Context) error {
	err := context.Cause(ctx)
	if err == nil {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return ErrDeadline
	}
	return err
}
