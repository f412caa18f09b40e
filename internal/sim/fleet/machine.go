package fleet

import (
	"math"
	"time"

	"sparrow/internal/sim/clock"
)

// machine simulates a machine that several replicas share. If more replicas compute than its capacity, all of them slow
// down equally. It implements formula.Time.
type machine struct {
	clock    *clock.Virtual
	capacity float64 // number of replicas that can compute at full speed
	busy     int
	changed  chan struct{} // closed when busy changes
}

func newMachine(c *clock.Virtual, capacity float64) *machine {
	return &machine{clock: c, capacity: capacity, changed: make(chan struct{})}
}

// Now returns the clock's time.
func (m *machine) Now() time.Time { return m.clock.Now() }

// Sleep waits until the machine has done work that takes the time work at full speed.
func (m *machine) Sleep(work time.Duration) {
	m.count(1)
	for work > 0 {
		speed := min(1, m.capacity/float64(m.busy))
		begun := m.clock.Now()
		if !m.clock.Wait(m.changed, time.Duration(math.Ceil(float64(work)/speed))) {
			break
		}
		work -= time.Duration(float64(m.clock.Now().Sub(begun)) * speed)
	}
	m.count(-1)
}

// count adds n to the number of computing replicas, which changes the speed of all of them.
func (m *machine) count(n int) {
	m.busy += n
	close(m.changed)
	m.changed = make(chan struct{})
}
