package sim

import (
	"errors"
	"slices"

	"sparrow/engine"
	"sparrow/sample"
)

// stream holds an accepted request and the events that its client has read.
type stream struct {
	request engine.Request
	job     *engine.Job
	engine  int  // number of the engine
	sent    int  // number of iterations before the request was sent
	first   int  // number of iterations before its first token; 0 if it has none
	alone   bool // its tenant had no other request
	// cancelled is the number of iterations before the client cancelled the stream; 0 if the client did not cancel it.
	cancelled int
	choices   []outcome
	ended     bool
}

// outcome is the result of a choice.
type outcome struct {
	tokens []int32
	events []engine.Event // events of the tokens
	scores []sample.Scored
	finish engine.Finish
	err    error
}

// read reads the available events and checks their order: each choice ends exactly once, and the last event of the
// stream is the end of the last choice.
func (s *stream) read(w *world) {
	for {
		ev, ok := s.job.Poll()
		if !ok {
			return
		}
		if s.ended {
			w.breaks("%s has an event after its last: %+v", s.request.ID, ev)
			return
		}
		c := &s.choices[ev.Choice]
		if c.finish != "" {
			w.breaks("choice %d of %s has an event after its end: %+v", ev.Choice, s.request.ID, ev)
			return
		}
		c.add(ev)
		left := slices.ContainsFunc(s.choices, func(c outcome) bool { return c.finish == "" })
		if ev.Last == left {
			w.breaks("%s: last event %t, choices left %t", s.request.ID, ev.Last, left)
		}
		if ev.Last {
			s.ended = true
			w.open--
			s.count(w)
		}
	}
}

func (c *outcome) add(ev engine.Event) {
	c.scores = append(c.scores, ev.Scores...)
	if ev.Token >= 0 {
		c.tokens, c.events = append(c.tokens, ev.Token), append(c.events, ev)
	}
	c.finish, c.err = ev.Finish, ev.Err
}

// count adds a finished stream to the report.
func (s *stream) count(w *world) {
	ends := map[engine.Finish]int{}
	for i := range s.choices {
		ends[s.choices[i].finish]++
	}
	switch {
	case ends[engine.FinishError] > 0:
		w.report.Failed++
	case ends[engine.FinishCancelled] > 0:
		w.report.Cancelled++
	default:
		w.report.Finished++
	}
}

// allowed reports whether a choice may fail with an error.
func (w *world) allowed(err error) bool {
	switch {
	case errors.Is(err, engine.ErrClosed):
		return w.halts
	case errors.Is(err, engine.ErrDevice):
		return w.report.Lost > 0
	}
	return errors.Is(err, engine.ErrStep) && w.report.Faults > 0
}
