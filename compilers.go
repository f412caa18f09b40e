package sparrow

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"sparrow/internal/background"
)

// compilers bounds how many schemas and tools are compiled at a time, so that compiling takes neither the cores that
// compute tokens nor more memory than a few schemas need. Those who wait take turns: one of each tenant, or of each
// source of requests without a tenant, then the second ones.
type compilers struct {
	mu    sync.Mutex
	free  int
	queue []*compiling // parties that wait, in the order of their turns
}

// compiling is the requests of one party that wait, in order. Closing a channel gives one its turn.
type compiling struct {
	party string
	turns []chan struct{}
}

func newCompilers() *compilers { return &compilers{free: max(runtime.GOMAXPROCS(0)/4, 1)} }

// run compiles when it is the party's turn, on a thread behind those that compute.
func (c *compilers) run(ctx context.Context, party string, compile func()) error {
	if err := c.enter(ctx, party); err != nil {
		return err
	}
	defer c.leave()
	background.Run(compile)
	return nil
}

// enter waits for a turn, until ctx ends.
func (c *compilers) enter(ctx context.Context, party string) error {
	c.mu.Lock()
	if c.free > 0 {
		c.free--
		c.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	i := slices.IndexFunc(c.queue, func(q *compiling) bool { return q.party == party })
	if i < 0 {
		i = len(c.queue)
		c.queue = append(c.queue, &compiling{party: party})
	}
	own := c.queue[i]
	own.turns = append(own.turns, turn)
	c.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.Index(own.turns, turn)
	if at < 0 { // it has got its turn meanwhile, and passes it on
		c.pass()
		return context.Cause(ctx)
	}
	if own.turns = slices.Delete(own.turns, at, at+1); len(own.turns) == 0 {
		c.queue = slices.DeleteFunc(c.queue, func(q *compiling) bool { return q == own })
	}
	return context.Cause(ctx)
}

func (c *compilers) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pass()
}

// pass gives a turn to the next party, or keeps it for who comes. The caller holds mu.
func (c *compilers) pass() {
	if len(c.queue) == 0 {
		c.free++
		return
	}
	next := c.queue[0]
	close(next.turns[0])
	next.turns = next.turns[1:]
	c.queue = c.queue[1:]
	if len(next.turns) > 0 {
		c.queue = append(c.queue, next)
	}
}
