package group

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sparrow/kernel"
)

// errBarrier is wrapped by the errors of ranks that did not fail but waited for a missing rank.
var errBarrier = errors.New("group: another rank did not reach the same operation")

// barrier synchronises ranks.
type barrier struct {
	timeout time.Duration
	failed  chan struct{} // closed when a rank is missing
	states  []rankState

	mu      sync.Mutex
	arrived int
	round   uint64 // number of completed barriers
	left    int    // number of ranks that have failed
	missed  error  // reason why no barrier can be completed any more
}

// rankState is the state of a rank at a barrier. Other ranks read its tensors between two barriers.
type rankState struct {
	here  bool
	left  bool
	at    call
	wake  chan struct{}
	timer *time.Timer
	watch watch // watch for the ranks that this rank waits for
}

// call is the collective operation that a rank has reached.
type call struct {
	op  string
	x   kernel.Tensor
	out kernel.Tensor // output tensor; not given if the operation has none
}

func (c *call) text() string { return fmt.Sprintf("%s of %v", c.op, c.x) }

// alike reports whether the calls of two ranks are one collective operation.
func (c *call) alike(d *call) bool {
	return c.op == d.op && c.x.DType == d.x.DType && c.x.Rows == d.x.Rows && c.x.Cols == d.x.Cols
}

// init makes a state for each rank; beats counts the operations of each rank.
func (m *barrier) init(beats []*atomic.Uint64, timeout time.Duration) {
	m.timeout, m.failed, m.states = timeout, make(chan struct{}), make([]rankState, len(beats))
	for i := range m.states {
		t := time.NewTimer(time.Hour)
		t.Stop()
		m.states[i].wake, m.states[i].timer, m.states[i].watch = make(chan struct{}, 1), t,
			newWatch(beats, timeout)
	}
}

// arrive waits until every rank has arrived with a matching operation c. A nil c is the end of the previous operation,
// whose tensors other ranks may read until then. It returns an error as soon as a rank cannot arrive any more, or has
// been at the same operation for the timeout.
func (m *barrier) arrive(rank int, c *call) error {
	s := &m.states[rank]
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.absent(); err != nil {
		return err
	}
	if s.here = true; c != nil {
		s.at = *c
	}
	m.arrived++
	round := m.round
	if m.arrived == len(m.states) {
		return m.complete()
	}
	s.watch.begin()
	s.timer.Reset(s.watch.every)
	for m.round == round {
		if err := m.absent(); err != nil {
			s.timer.Stop()
			return err
		}
		m.mu.Unlock()
		late := false
		select {
		case <-s.wake:
		case <-s.timer.C:
			late = true
		}
		m.mu.Lock()
		switch here := func(i int) bool { return m.states[i].here }; {
		case !late || m.round != round:
		case !s.watch.stuck(here):
			s.timer.Reset(s.watch.every)
		default:
			m.miss(fmt.Errorf("%s did not reach %s within %v", m.missing(here), s.at.text(), m.timeout))
		}
	}
	s.timer.Stop()
	return nil
}

// absent returns an error if a rank cannot reach the barrier any more. The caller holds mu.
func (m *barrier) absent() error {
	switch {
	case m.missed != nil:
		return fmt.Errorf("%w: %w", errBarrier, m.missed)
	case m.left > 0:
		return fmt.Errorf("%w: it failed", errBarrier)
	}
	return nil
}

// complete ends a barrier that all ranks have reached. The caller holds mu.
func (m *barrier) complete() error {
	for i := range m.states {
		if a, b := &m.states[0].at, &m.states[i].at; !a.alike(b) {
			m.miss(fmt.Errorf("rank 0 has reached %s, but rank %d has reached %s", a.text(), i, b.text()))
			return m.absent()
		}
	}
	m.round++
	m.clear()
	return nil
}

// clear resets the states of all ranks and wakes those that wait. The caller holds mu.
func (m *barrier) clear() {
	m.arrived = 0
	for i := range m.states {
		m.states[i].here = false
	}
	m.wakeAll()
}

func (m *barrier) wakeAll() {
	for i := range m.states {
		select {
		case m.states[i].wake <- struct{}{}:
		default: // the rank has a signal that it has not received yet, and checks the state then
		}
	}
}

// miss ends all barriers. The caller holds mu.
func (m *barrier) miss(why error) {
	if m.missed == nil {
		m.missed = fmt.Errorf("%w: %w", kernel.ErrLost, why)
		close(m.failed)
	}
	m.wakeAll()
}

// late ends all barriers because some ranks have not returned from a pass that other ranks have completed, and returns
// the reason.
func (m *barrier) late(back []bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.miss(fmt.Errorf("%s did not end a pass within %v of the others", m.missing(func(i int) bool { return back[i] }),
		m.timeout))
	return m.missed
}

// missing returns the names of the ranks that have not arrived, as text.
func (m *barrier) missing(here func(rank int) bool) string {
	var list []string
	for i := range m.states {
		if !here(i) {
			list = append(list, fmt.Sprint(i))
		}
	}
	word := "rank"
	if len(list) > 1 {
		word = "ranks"
	}
	return fmt.Sprintf("%s %s of %d", word, strings.Join(list, ", "), len(m.states))
}

// leave records that a rank has failed and will not reach the barrier: ranks that wait for it stop waiting.
func (m *barrier) leave(rank int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if errors.Is(err, errBarrier) || m.states[rank].left {
		return
	}
	m.states[rank].left = true
	m.left++
	m.wakeAll()
}

// reset clears the state of failed ranks. No rank may be at a barrier.
func (m *barrier) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = 0
	for i := range m.states {
		m.states[i].left = false
	}
	m.clear()
}

// err returns the reason why no barrier can be completed any more, or nil.
func (m *barrier) err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.missed
}
