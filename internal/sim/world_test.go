package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"sparrow/engine"
	"sparrow/internal/sim/clock"
	"sparrow/internal/sim/formula"
)

// Report holds the counts of one simulation or of several.
type Report struct {
	Requests  int // number of requests that were sent
	Bad       int // number of requests that were refused as invalid
	Refused   int // number of requests that were refused because of a full queue, or a lost or closed engine
	Finished  int
	Cancelled int
	Failed    int
	Faults    int
	Lost      int   // number of engines that lost their device
	Steps     int64 // number of forward passes
	Overlaps  int64 // number of forward passes that were enqueued while another pass ran
	Unused    int64 // number of tokens computed for choices that had ended
	Preempted int64
	Cached    int64 // number of tokens taken from the prefix cache
	Accepted  int64 // number of accepted drafts
	Ahead     int64 // number of draft passes that were enqueued before the host had the target's tokens
	Tokens    int64 // number of output tokens
	Virtual   time.Duration
	WorstWait int // maximum number of iterations before the first token of a tenant's only request, without faults
}

// Add adds the counts of another report.
func (r *Report) Add(o Report) {
	for _, f := range []struct{ to, from *int }{{&r.Requests, &o.Requests}, {&r.Bad, &o.Bad}, {&r.Refused, &o.Refused},
		{&r.Finished, &o.Finished}, {&r.Cancelled, &o.Cancelled}, {&r.Failed, &o.Failed}, {&r.Faults, &o.Faults},
		{&r.Lost, &o.Lost}} {
		*f.to += *f.from
	}
	for _, f := range []struct{ to, from *int64 }{{&r.Steps, &o.Steps}, {&r.Overlaps, &o.Overlaps},
		{&r.Unused, &o.Unused}, {&r.Preempted, &o.Preempted},
		{&r.Cached, &o.Cached}, {&r.Accepted, &o.Accepted}, {&r.Ahead, &o.Ahead}, {&r.Tokens, &o.Tokens}} {
		*f.to += *f.from
	}
	r.Virtual += o.Virtual
	r.WorstWait = max(r.WorstWait, o.WorstWait)
}

// DefaultRequests is the approximate number of requests of a run: it is large enough to fill caches and small enough to
// understand a trace.
const DefaultRequests = 60

// Run simulates the scenario of a seed with approximately the given number of requests.
func Run(seed uint64, requests int) (Report, error) {
	return newWorld(seed, requests).run()
}

// newWorld returns the world of a seed.
func newWorld(seed uint64, requests int) *world {
	w := &world{scenario: newScenario(seed, requests), clock: clock.New(time.Unix(1e9, 0)),
		check: (*engine.Engine).Check}
	w.chance = rand.New(rand.NewPCG(seed, 2))
	return w
}

// run runs the simulation to its end and returns the report.
func (w *world) run() (Report, error) {
	begun := w.clock.Now()
	err := w.clock.Run(w.live)
	w.report.Virtual = w.clock.Now().Sub(begun)
	switch {
	case w.broken != nil:
		return w.report, w.broken
	case err != nil:
		return w.report, err
	case w.clock.Processes() > 0:
		return w.report, fmt.Errorf("sim: %d processes still run after the end", w.clock.Processes())
	}
	return w.report, w.compare()
}

// world holds the state of one simulation.
type world struct {
	*scenario
	clock  *clock.Virtual
	chance *rand.Rand // source of random faults

	device  *formula.Device
	engine  *engine.Engine
	check   func(*engine.Engine) error // engine.Engine.Check, or a replacement in a test
	opening bool                       // an engine is opening, during which no faults occur
	number  int                        // number of the engine, from 1
	steps   int                        // number of iterations of all engines

	streams []*stream
	open    int // number of streams that have not ended
	report  Report
	nan     int   // number of faults that made every sequence of a batch fail
	broken  error // the first violation of an invariant
}

func (w *world) breaks(format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf("sim: "+format, args...)
	}
}

// stuck is the virtual time without an iteration after which an engine with work counts as stuck: more than the sum of
// all hangs of one pass.
const stuck = time.Hour

// live is the main process: it sends requests, opens another engine if the device was lost, and closes the engine.
func (w *world) live() {
	if w.start(); w.broken != nil {
		return
	}
	for i := range w.requests {
		w.clock.Sleep(w.pause(i))
		if w.engine.Stats().Device != "" && w.device.Lost() {
			w.stop(false)
			w.start()
		}
		w.send(i)
		if w.broken != nil {
			return
		}
	}
	for steps, since := w.steps, w.clock.Now(); !w.halts && w.open > 0 && w.broken == nil; {
		w.clock.Sleep(time.Second)
		for _, s := range w.streams {
			s.read(w) // also reads streams that no client reads
		}
		if w.steps != steps {
			steps, since = w.steps, w.clock.Now()
		} else if w.open > 0 && w.clock.Now().Sub(since) > stuck {
			w.breaks("%d streams have not ended, and no iteration has ended for %v", w.open, stuck)
		}
	}
	w.stop(w.halts)
}

// start opens an engine on a new device.
func (w *world) start() {
	w.number++
	w.opening = true
	w.device = formula.NewDevice(formula.Settings{Cost: w.cost, Time: w.clock, Beside: w.beside, Hang: w.hang,
		Faults: w.fault})
	c := w.config
	c.Log, c.Clock, c.Observe = slog.New(slog.DiscardHandler), w.clock, w.observe
	var err error
	if w.engine, err = open(w.shape, w.device, c); err != nil {
		w.breaks("opening an engine: %w", err)
		return
	}
	w.opening = false
	w.clock.Go(w.engine.Run)
}

// stop closes the engine, at once or after its requests have ended.
func (w *world) stop(halt bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if halt {
		cancel()
	}
	w.engine.Close(ctx)
	if err := w.check(w.engine); err != nil {
		w.breaks("after closing: %w", err)
	}
	for _, s := range w.streams {
		s.read(w)
		if !s.ended && s.engine == w.number {
			w.breaks("%s has not ended although its engine was closed", s.request.ID)
		}
	}
	st := w.engine.Stats()
	w.report.Steps += st.Steps
	w.report.Overlaps += st.Overlapped
	w.report.Unused += st.Unused
	w.report.Preempted += st.Preempted
	w.report.Cached += st.CachedTokens
	w.report.Accepted += st.Accepted
	w.report.Ahead += st.DraftsAhead
	w.report.Tokens += st.OutputTokens
	if w.device.Lost() {
		w.report.Lost++
	}
	w.clock.Sleep(w.config.Watchdog) // lets the other goroutines of the engine end
}

// open returns a new engine.
func open(shape formula.Shape, dev *formula.Device, c engine.Config) (*engine.Engine, error) {
	m, err := formula.New(shape, dev)
	if err != nil {
		return nil, err
	}
	return engine.New(m, c)
}

// fault returns the random fault of an operation, or None.
func (w *world) fault(op formula.Op) formula.Fault {
	if w.opening || len(w.faults) == 0 || w.chance.Float64() >= w.rate {
		return formula.None
	}
	f := w.faults[w.chance.IntN(len(w.faults))]
	if f == formula.Lose && w.chance.IntN(3) > 0 {
		return formula.None // other faults need a running engine
	}
	w.report.Faults++
	switch {
	case f == formula.NaN:
		w.nan++
	// States are not part of a pass, so the watchdog does not watch them.
	case f == formula.Hang && op != formula.OpState && w.hang > 2*w.config.Watchdog:
		w.clock.After(w.hang-w.config.Watchdog/2, w.checkHang)
	}
	return f
}

// checkHang checks that the watchdog has reported the pass that hangs.
func (w *world) checkHang() {
	if w.engine.Stats().Device == "" {
		w.breaks("a pass takes %v, but the watchdog has not reported it after %v", w.hang, w.config.Watchdog)
	}
}

// observe checks the engine after every iteration and every batch.
func (w *world) observe(between bool) {
	if !between {
		w.steps++
	}
	if err := w.check(w.engine); err != nil {
		w.breaks("after iteration %d: %w", w.steps, err)
	}
	for _, s := range w.streams {
		if s.ended || s.engine != w.number {
			continue
		}
		if s.first == 0 && s.job.Usage().CompletionTokens > 0 {
			s.first = w.steps
		}
		if s.cancelled > 0 && w.steps > s.cancelled+1 {
			if s.read(w); !s.ended {
				w.breaks("%s continues %d iterations after it was cancelled", s.request.ID, w.steps-s.cancelled)
			}
		}
	}
}

// cancel cancels a stream from the client's side.
func (w *world) cancel(s *stream) {
	if s.cancelled == 0 {
		s.cancelled = max(w.steps, 1)
	}
	s.job.Cancel()
}

// send submits the next request, and chooses the behaviour of its client.
func (w *world) send(number int) {
	r, bad := w.request(number, w.known())
	w.report.Requests++
	s := &stream{request: r, engine: w.number, sent: w.steps, alone: true, choices: make([]outcome, 0, 1)}
	for _, other := range w.streams {
		if !other.ended && other.request.Tenant == r.Tenant {
			s.alone, other.alone = false, other.alone && other.first > 0
		}
	}
	job, err := w.engine.Submit(r)
	var refusal *engine.RequestError
	switch {
	case bad && err != nil && (errors.As(err, &refusal) || errors.Is(err, engine.ErrRequest)):
		w.report.Bad++
		return
	case bad:
		w.breaks("%s is invalid, but the result was %v", r.ID, err)
		return
	case errors.Is(err, engine.ErrQueueFull), errors.Is(err, engine.ErrDevice) && w.device.Lost():
		w.report.Refused++
		return
	case err != nil:
		w.breaks("%s was refused: %w", r.ID, err)
		return
	}
	s.job, s.choices = job, make([]outcome, job.Choices())
	w.streams = append(w.streams, s)
	w.open++
	w.behave(s)
}

// behave makes the client of a stream read, disconnect or cancel.
func (w *world) behave(s *stream) {
	d := w.draw
	every := time.Duration(1+d.IntN(200)) * time.Millisecond
	switch d.IntN(6) {
	case 0: // the client disappears, and the server cancels the request
		w.clock.After(time.Duration(d.ExpFloat64()*float64(20*w.gap)), func() { w.cancel(s) })
		if d.IntN(2) == 0 {
			return // the client does not read
		}
	case 1: // the client has a deadline
		w.clock.After(time.Duration(d.IntN(5000))*time.Millisecond, func() { w.cancel(s) })
	case 2: // the client reads slowly
		every *= 50
	case 3: // the client cancels twice at the same time
		if d.IntN(4) == 0 {
			w.cancel(s)
			w.cancel(s)
		}
	}
	var tick func()
	tick = func() {
		if s.read(w); !s.ended {
			w.clock.After(every, tick)
		}
	}
	w.clock.After(every, tick)
}

// known returns sequences of the current engine that requests may continue: prompts with their answers.
func (w *world) known() (out [][]int32) {
	for _, s := range w.streams[max(len(w.streams)-8, 0):] {
		if len(s.choices) == 0 {
			continue
		}
		out = append(out, append(append([]int32(nil), s.request.Prompt...), s.choices[0].tokens...))
	}
	return out
}
