package step

import (
	"sparrow/kernel"
	"sparrow/plan"
)

// Started is a pass of the target whose inputs are enqueued. Its operations may be enqueued in parts, and between these
// another runner of the same model may run passes over other sequences.
type Started struct {
	r       *Runner
	pass    *pass
	block   []int32
	program kernel.Program // program of the pass; nil before the first part is enqueued
	ran     int            // number of parts that were enqueued
}

// Begin prepares one pass of the target and enqueues its inputs. The caller may change works and the slices in them. At
// most one earlier pass may still be in flight.
func (r *Runner) Begin(works []Work) (Started, error) {
	if err := r.collect(works); err != nil {
		return Started{}, err
	}
	r.pad(&r.target)
	p, block, err := r.ready(&r.target)
	if err != nil {
		return Started{}, err
	}
	return Started{r: r, pass: p, block: block}, r.attempt(p, func() error { return r.enter(&r.target, p, block) })
}

// Left returns the number of parts that have not been enqueued.
func (s *Started) Left() (int, error) {
	if s.program == nil {
		err := s.r.attempt(s.pass, func() (err error) {
			s.program, err = s.pass.program()
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return s.program.Len() - s.ran, nil
}

// Run enqueues the next part; at least one part must be left. After an error the caller must end the pass.
func (s *Started) Run() error {
	s.ran++
	return s.r.attempt(s.pass, func() error { return s.program.Run(s.ran-1, s.ran) })
}

// Stop ends a pass without enqueueing its remaining parts, because of the given error.
func (s *Started) Stop(why error) error {
	return s.r.attempt(s.pass, func() error { return why })
}

// End enqueues the remaining operations, from a captured graph if none has been enqueued yet, and the copy of the
// results.
func (s *Started) End() (Pending, error) {
	r, p := s.r, s.pass
	err := r.attempt(p, func() error {
		if s.program == nil {
			return r.graphs.enqueue(p)
		}
		p.graph = plan.GraphNone
		return s.program.Run(s.ran, s.program.Len())
	})
	if err != nil {
		return Pending{}, err
	}
	r.leave(&r.target, p)
	return r.fetch(&r.target, p, s.block)
}
