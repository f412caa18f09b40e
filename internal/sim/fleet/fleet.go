package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"sparrow/engine"
	"sparrow/internal/sim/clock"
	"sparrow/internal/sim/formula"
	"sparrow/internal/spec"
	"sparrow/sample"
)

// Config configures the replicas and the router.
type Config struct {
	Replicas int
	Policy   Policy
	Cost     formula.Cost
	Seed     uint64 // seed for random tokens and for choices among equal replicas

	CacheTokens   int // tokens in the cache of a replica
	ContextTokens int
	StepTokens    int
	MaxRunning    int
	MaxQueue      int
	// Capacity is the number of replicas that run at full speed on one shared machine; 0 means one machine per replica.
	Capacity float64

	Deaths []Death
}

// Death is the failure of a replica. Its requests are lost and sent again to other replicas. After the time Back,
// unless it is 0, the replica starts again with an empty cache.
type Death struct {
	Replica  int
	At, Back time.Duration
}

// check returns an error if the configuration is invalid.
func (c *Config) check() error {
	var bad []string
	for _, f := range []struct {
		name string
		v    int
	}{{"replicas", c.Replicas}, {"cache tokens", c.CacheTokens}, {"context tokens", c.ContextTokens},
		{"step tokens", c.StepTokens}, {"running sequences", c.MaxRunning}, {"waiting sequences", c.MaxQueue}} {
		if f.v < 1 {
			bad = append(bad, fmt.Sprintf("%s is %d, want at least 1", f.name, f.v))
		}
	}
	if k := c.Cost; k.Pass <= 0 || k.Row < 0 || k.Decode < 0 || k.Keys < 0 {
		bad = append(bad, fmt.Sprintf("the costs are %v per pass, %v per prompt row, %v per decode and %v per "+
			"thousand keys; want positive ones", k.Pass, k.Row, k.Decode, k.Keys))
	}
	if !(c.Capacity >= 0) {
		bad = append(bad, fmt.Sprintf("the capacity is %v, want how many replicas a machine can serve at full speed, "+
			"or 0", c.Capacity))
	}
	for _, d := range c.Deaths {
		if d.Replica < 0 || d.Replica >= c.Replicas || d.At < 0 || d.Back < 0 {
			bad = append(bad, fmt.Sprintf("replica %d fails after %v and works again after %v; want a replica from 0 "+
				"to %d, and times of 0 or more", d.Replica, d.At, d.Back, c.Replicas-1))
		}
	}
	if len(bad) > 0 {
		return fmt.Errorf("fleet: %s", strings.Join(bad, "; "))
	}
	return nil
}

// Run simulates a trace and returns the report.
func Run(c Config, sessions []Session) (*Report, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	f := &fleet{Config: c, clock: clock.New(time.Unix(0, 0)), report: &Report{Replicas: make([]Share, c.Replicas)}}
	if f.time = f.clock; c.Capacity > 0 {
		f.time = newMachine(f.clock, c.Capacity)
	}
	err := f.clock.Run(func() { f.live(sessions) })
	if f.err != nil {
		err = f.err
	}
	if err != nil {
		return nil, err
	}
	f.report.finish()
	return f.report, nil
}

// fleet is the state of one run.
type fleet struct {
	Config
	clock    *clock.Virtual
	time     formula.Time // clock for the time of passes
	router   *router
	replicas []*replica
	left     int           // number of sessions that have not ended
	done     chan struct{} // closed when no session is left
	report   *Report
	err      error
}

// replica is an engine with its requests; engine is nil after the replica has failed.
type replica struct {
	fleet  *fleet
	engine *engine.Engine
	open   []*call
}

// call is a running request.
type call struct {
	job    *engine.Job
	first  time.Time
	tokens []int32
	failed bool
	ended  chan struct{}
}

func (f *fleet) live(sessions []Session) {
	for i := range f.Replicas {
		r := &replica{fleet: f}
		f.replicas = append(f.replicas, r)
		if f.err = r.start(); f.err != nil {
			return
		}
		if i == 0 {
			info := r.engine.Info()
			f.router = newRouter(f.Policy, f.Replicas, info.PageTokens, info.Pages, f.Seed)
		}
	}
	f.left, f.done = len(sessions), make(chan struct{})
	for i := range sessions {
		f.clock.Go(func() {
			f.converse(&sessions[i])
			if f.left--; f.left == 0 {
				close(f.done)
			}
		})
	}
	for _, d := range f.Deaths {
		f.clock.Go(func() { f.die(d) })
	}
	f.clock.Wait(f.done, 0)
	f.report.Took = f.clock.Now().Sub(time.Unix(0, 0))
	for i, r := range f.replicas {
		if r.engine != nil {
			r.close(i)
		}
	}
	f.clock.Sleep(1) // let the processes of deaths end
}

// start starts the replica's engine.
func (r *replica) start() error {
	c := &r.fleet.Config
	dev := formula.NewDevice(formula.Settings{Cost: c.Cost, Time: r.fleet.time})
	m, err := formula.New(formula.Shape{Vocab: vocabulary, Context: c.ContextTokens, Plain: true}, dev)
	if err != nil {
		return err
	}
	r.engine, err = engine.New(m, engine.Config{CacheTokens: c.CacheTokens, StepTokens: c.StepTokens,
		MaxRunning: c.MaxRunning, MaxQueue: c.MaxQueue, PlanHistory: 1, Draft: spec.Off(), Clock: r.fleet.clock,
		Observe: r.observe, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	r.fleet.clock.Go(r.engine.Run)
	return nil
}

// observe reads the events of the replica's requests after a step.
func (r *replica) observe(bool) {
	r.open = slices.DeleteFunc(r.open, func(c *call) bool { return c.read(r.fleet.clock.Now()) })
}

// read reads the events of a call. It returns true if the call has ended.
func (c *call) read(now time.Time) bool {
	for {
		ev, ok := c.job.Poll()
		if !ok {
			return false
		}
		if ev.Token >= 0 {
			if c.tokens = append(c.tokens, ev.Token); c.first.IsZero() {
				c.first = now
			}
		}
		if ev.Last {
			c.failed = ev.Err != nil
			c.ended <- struct{}{}
			return true
		}
	}
}

// close closes the replica's engine and adds its counters to the report.
func (r *replica) close(number int) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	e := r.engine
	r.engine = nil
	e.Close(ctx)
	r.observe(false)
	r.fleet.report.Replicas[number].add(e.Stats())
}

// die stops a replica at its time of death and starts it again later.
func (f *fleet) die(d Death) {
	if f.clock.Wait(f.done, max(d.At, 1)) || f.replicas[d.Replica].engine == nil {
		return
	}
	f.replicas[d.Replica].close(d.Replica)
	f.router.forget(d.Replica)
	if d.Back == 0 || f.clock.Wait(f.done, d.Back) {
		return
	}
	if err := f.replicas[d.Replica].start(); err != nil && f.err == nil {
		f.err = err
	}
}

// retryAfter is the pause of a client after a refused request, or if no replica runs.
const retryAfter = time.Second

// converse runs the turns of a conversation.
func (f *fleet) converse(s *Session) {
	talk := talk{seed: f.Seed, session: s}
	for i := range s.Turns {
		f.clock.Sleep(talk.pause(i))
		prompt := talk.prompt(i)
		if len(prompt)+s.Turns[i].OutputTokens > f.ContextTokens {
			f.report.TooLong++
			return
		}
		a, err := f.answer(&s.Turns[i], prompt)
		if err != nil {
			if f.err == nil {
				f.err = err
			}
			return
		}
		f.report.count(a)
		talk.history = append(talk.history, a.tokens...)
	}
}

// answer sends a turn, and repeats it until a replica has answered it.
func (f *fleet) answer(t *Turn, prompt []int32) (answer, error) {
	begun := f.clock.Now()
	for {
		load, alive := make([]int, len(f.replicas)), false
		for i, r := range f.replicas {
			if load[i] = -1; r.engine != nil {
				st := r.engine.Stats()
				load[i], alive = st.Running+st.Waiting, true
			}
		}
		if !alive {
			f.report.Refused++
			f.clock.Sleep(retryAfter)
			continue
		}
		r := f.replicas[f.router.choose(t.Tenant, prompt, load)]
		p := sample.Default()
		p.Temperature = 0
		job, err := r.engine.Submit(engine.Request{Prompt: prompt, MaxTokens: t.OutputTokens, Sampling: p,
			IgnoreEOS: true, Tenant: t.Tenant})
		if errors.Is(err, engine.ErrQueueFull) {
			f.report.Refused++
			f.clock.Sleep(retryAfter)
			continue
		}
		if err != nil {
			return answer{}, fmt.Errorf("fleet: session %s: %w", t.Session, err)
		}
		c := &call{job: job, ended: make(chan struct{}, 1)}
		r.open = append(r.open, c)
		f.clock.Wait(c.ended, 0)
		if c.failed {
			f.report.Resent++
			continue
		}
		u := job.Usage()
		return answer{prompt: u.PromptTokens, cached: u.CachedTokens, output: u.CompletionTokens, tokens: c.tokens,
			first: c.first.Sub(begun), took: f.clock.Now().Sub(begun)}, nil
	}
}
