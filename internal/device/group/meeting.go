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

// errMeeting is wrapped by errors of ranks that did not fail by themselves: another one was missing.
var errMeeting = errors.New("group: another rank is missing")

// meeting is where ranks wait for each other.
type meeting struct {
	timeout time.Duration
	failed  chan struct{} // closed once a rank was missing
	seats   []seat

	mu      sync.Mutex
	arrived int
	round   uint64 // of meetings that took place
	left    int    // ranks that have failed
	missed  error  // why no meeting takes place any more
}

// seat is the state of a rank at a barrier. Its tensors are read by others between two barriers.
type seat struct {
	here  bool
	left  bool
	at    call
	wake  chan struct{}
	timer *time.Timer
	watch watch // of those that it waits for
}

// call is the collective operation that a rank has reached.
type call struct {
	op  string
	x   kernel.Tensor
	out kernel.Tensor // not given where the operation has none
}

func (c *call) text() string { return fmt.Sprintf("%s of %v", c.op, c.x) }

// alike reports whether two ranks have reached the same operation.
func (c *call) alike(d *call) bool {
	return c.op == d.op && c.x.DType == d.x.DType && c.x.Rows == d.x.Rows && c.x.Cols == d.x.Cols
}

// init makes a seat for each rank, whose operations beats count.
func (m *meeting) init(beats []*atomic.Uint64, timeout time.Duration) {
	m.timeout, m.failed, m.seats = timeout, make(chan struct{}), make([]seat, len(beats))
	for i := range m.seats {
		t := time.NewTimer(time.Hour)
		t.Stop()
		m.seats[i].wake, m.seats[i].timer, m.seats[i].watch = make(chan struct{}, 1), t,
			newWatch(beats, timeout)
	}
}

// come waits until every rank has come with an operation like this one, or with nil for the end of the one before,
// whose tensors others may still read. It returns an error as soon as one cannot come any more, or has stayed at one
// operation for the time-out.
func (m *meeting) come(rank int, c *call) error {
	s := &m.seats[rank]
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
	if m.arrived == len(m.seats) {
		return m.meet()
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
		switch here := func(i int) bool { return m.seats[i].here }; {
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

// absent is an error where a rank cannot come any more. The caller holds mu.
func (m *meeting) absent() error {
	switch {
	case m.missed != nil:
		return fmt.Errorf("%w: %w", errMeeting, m.missed)
	case m.left > 0:
		return fmt.Errorf("%w: it failed", errMeeting)
	}
	return nil
}

// meet completes a barrier that all ranks have reached. The caller holds mu.
func (m *meeting) meet() error {
	for i := range m.seats {
		if a, b := &m.seats[0].at, &m.seats[i].at; !a.alike(b) {
			m.miss(fmt.Errorf("rank 0 has reached %s and rank %d %s", a.text(), i, b.text()))
			return m.absent()
		}
	}
	m.round++
	m.clear()
	return nil
}

// clear resets the states of all ranks and wakes those that wait. The caller holds mu.
func (m *meeting) clear() {
	m.arrived = 0
	for i := range m.seats {
		m.seats[i].here = false
	}
	m.wakeAll()
}

func (m *meeting) wakeAll() {
	for i := range m.seats {
		select {
		case m.seats[i].wake <- struct{}{}:
		default: // it has not yet seen the last one, and looks at everything when it does
		}
	}
}

// miss ends all meetings. The caller holds mu.
func (m *meeting) miss(why error) {
	if m.missed == nil {
		m.missed = fmt.Errorf("%w: %w", kernel.ErrLost, why)
		close(m.failed)
	}
	m.wakeAll()
}

// late ends all meetings because ranks have not returned from a pass that others have ended, and is why.
func (m *meeting) late(back []bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.miss(fmt.Errorf("%s did not end a pass within %v of the others", m.missing(func(i int) bool { return back[i] }),
		m.timeout))
	return m.missed
}

// missing names the ranks that are not here.
func (m *meeting) missing(here func(rank int) bool) string {
	var list []string
	for i := range m.seats {
		if !here(i) {
			list = append(list, fmt.Sprint(i))
		}
	}
	word := "rank"
	if len(list) > 1 {
		word = "ranks"
	}
	return fmt.Sprintf("%s %s of %d", word, strings.Join(list, ", "), len(m.seats))
}

// leave records that a rank has failed and will not reach the barrier: ranks that wait for it stop waiting.
func (m *meeting) leave(rank int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if errors.Is(err, errMeeting) || m.seats[rank].left {
		return
	}
	m.seats[rank].left = true
	m.left++
	m.wakeAll()
}

// reset forgets ranks that failed. No rank may be at a meeting.
func (m *meeting) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = 0
	for i := range m.seats {
		m.seats[i].left = false
	}
	m.clear()
}

// err is why no meeting takes place any more.
func (m *meeting) err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.missed
}
