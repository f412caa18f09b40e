package load

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"sparrow/api/openai"
)

// Run sends the load and waits for all answers. If ctx ends, it cancels requests in flight and returns a report of the
// answers so far, without an error.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c, err := newCaller(&o, o.Key)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ids, err := c.discover(ctx)
	if err != nil {
		return nil, err
	}
	r := &runner{o: &o, caller: c, prompts: newPrompter(&o, ids)}
	r.total = r.planned()
	var b *beside
	if o.Streams > 0 {
		if b, err = r.startBeside(ctx); err != nil {
			return nil, err
		}
	}
	started := time.Now()
	r.send(ctx)
	r.wait.Wait()
	took := time.Since(started)
	report := r.report(c.model, took)
	if b != nil {
		report.Beside = b.stop(started, started.Add(took))
	}
	return report, nil
}

// runner holds the state of one run.
type runner struct {
	o       *Options
	caller  *caller
	prompts *prompter
	total   int // number of requests to send
	wait    sync.WaitGroup

	mu       sync.Mutex
	outcomes []outcome
}

// send sends requests until all are sent, Duration is over or ctx ends.
func (r *runner) send(ctx context.Context) {
	stop := ctx
	if r.o.Duration > 0 {
		limited, cancel := context.WithTimeout(ctx, r.o.Duration)
		defer cancel()
		stop = limited
	}
	wait := r.arrivals()
	if r.o.Concurrency > 0 {
		wait = r.slots()
	}
	for i := range r.o.Requests {
		done, ok := wait(stop)
		if !ok {
			return
		}
		r.wait.Go(func() {
			defer done()
			if r.o.Turns.Most > 0 {
				r.converse(ctx, stop, i)
			} else {
				r.finish(r.caller.complete(ctx, r.prompts.task(i)))
			}
		})
	}
}

// converse sends the turns of conversation i, until a turn fails or stop ends.
func (r *runner) converse(ctx, stop context.Context, i int) {
	said, output := r.prompts.conversation(i)
	var messages []openai.Message
	for turn, text := range said {
		messages = append(messages, openai.Message{Role: openai.RoleUser, Content: openai.Content{text}})
		o := r.caller.chat(ctx, messages, output[turn])
		r.finish(o)
		if o.failure != "" || stop.Err() != nil {
			return
		}
		messages = append(messages, openai.Message{Role: openai.RoleAssistant, Content: openai.Content{string(o.text)}})
	}
}

// planned returns the number of requests to send; every turn of a conversation is a request.
func (r *runner) planned() int {
	if r.o.Turns.Most == 0 {
		return r.o.Requests
	}
	n := 0
	for i := range r.o.Requests {
		said, _ := r.prompts.conversation(i)
		n += len(said)
	}
	return n
}

// gate waits until the next request may be sent; ok is false if no more requests may be sent. After the answer, the
// caller calls done.
type gate func(stop context.Context) (done func(), ok bool)

// arrivals returns the gate of a Poisson process. Arrival times are relative to the start, so that a late request does
// not delay later ones.
func (r *runner) arrivals() gate {
	random := rand.New(rand.NewPCG(r.o.Seed, ^uint64(0)>>1))
	start, at := time.Now(), time.Duration(0)
	return func(stop context.Context) (func(), bool) {
		timer := time.NewTimer(time.Until(start.Add(at)))
		defer timer.Stop()
		at += time.Duration(random.ExpFloat64() / r.o.Rate * float64(time.Second))
		select {
		case <-timer.C:
			return func() {}, stop.Err() == nil
		case <-stop.Done():
			return nil, false
		}
	}
}

// slots returns a gate that limits the number of requests in flight to Concurrency.
func (r *runner) slots() gate {
	free := make(chan struct{}, r.o.Concurrency)
	return func(stop context.Context) (func(), bool) {
		select {
		case free <- struct{}{}:
			return func() { <-free }, stop.Err() == nil
		case <-stop.Done():
			return nil, false
		}
	}
}

func (r *runner) finish(o outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outcomes = append(r.outcomes, o)
	if r.o.OnDone != nil {
		r.o.OnDone(len(r.outcomes), r.total)
	}
}
