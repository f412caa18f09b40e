package sparrow

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"sparrow/internal/background"
	"sparrow/internal/unit"
)

// compilers limits the concurrent compilations of schemas and tools, so that compiling does not use the cores that
// compute tokens, and little memory. Waiting requests are served round-robin by tenant: first the oldest request of
// each tenant, then the second. A source without a tenant counts as a tenant. The bytes of compiled schemas of running
// and waiting requests are limited; one tenant may use half of the limit.
type compilers struct {
	mu    sync.Mutex
	free  int
	queue []*compiling // tenants with waiting requests, in the order of their turns
	most  int          // maximum of held, the bytes of compiled schemas
	held  int
	by    map[string]int // bytes held by each tenant
}

// maxCompiled is the maximum size of the compiled schemas of running and waiting requests, in bytes.
const maxCompiled = 256 << 20

// maxToolBytes is the maximum size of the compiled tools that are cached for later requests, in bytes.
const maxToolBytes = 128 << 20

// compiling holds the waiting requests of one tenant, in order of arrival. A request starts when its channel is closed.
type compiling struct {
	tenant string
	turns  []chan struct{}
}

func newCompilers() *compilers {
	return &compilers{free: max(runtime.GOMAXPROCS(0)/4, 1), most: maxCompiled, by: map[string]int{}}
}

// hold reserves memory for the compiled schemas of a request until release is called. It returns ErrSchemaMemory if all
// tenants together, or this tenant alone, would exceed their limit.
func (c *compilers) hold(tenant string, bytes int) (release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own := c.by[tenant] + bytes; own > c.most/2 || c.held+bytes > c.most {
		return nil, fmt.Errorf("%w: the compiled schemas of running and waiting requests take %s, those of this "+
			"tenant take %s; the limit is %s for all tenants and half of it for one tenant; this request needs %s: "+
			"wait for answers, or send smaller schemas",
			ErrSchemaMemory, unit.Bytes(int64(c.held)), unit.Bytes(int64(c.by[tenant])), unit.Bytes(int64(c.most)),
			unit.Bytes(int64(bytes)))
	}
	c.held += bytes
	c.by[tenant] += bytes
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.held -= bytes
		if c.by[tenant] -= bytes; c.by[tenant] == 0 {
			delete(c.by, tenant)
		}
	}, nil
}

// run waits for the tenant's turn and then calls compile on a thread of lower priority than the threads that compute
// tokens.
func (c *compilers) run(ctx context.Context, tenant string, compile func()) error {
	if err := c.enter(ctx, tenant); err != nil {
		return err
	}
	defer c.leave()
	background.Run(compile)
	return nil
}

// enter waits until it is the tenant's turn to compile, or until ctx ends.
func (c *compilers) enter(ctx context.Context, tenant string) error {
	c.mu.Lock()
	if c.free > 0 {
		c.free--
		c.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	i := slices.IndexFunc(c.queue, func(q *compiling) bool { return q.tenant == tenant })
	if i < 0 {
		i = len(c.queue)
		c.queue = append(c.queue, &compiling{tenant: tenant})
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
	if at < 0 { // the request got its turn before ctx ended, so the next request gets the turn
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

// pass gives the turn to the next waiting tenant. Without one, the next request to arrive gets the turn. The caller
// holds mu.
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
