package fleet

import (
	"math"
	"time"

	"sparrow/internal/sim/clock"
)

// machine is a machine that replicas share: it does the work of a limited number of replicas at a time, and all
// replicas with work get equal shares. It implements formula.Time.
type machine struct {
	clock    *clock.Virtual
	capacity float64 // number of replicas whose work is done at full speed
	busy     int
	changed  chan struct{} // closed when busy changes
}

func newMachine(c *clock.Virtual, capacity float64) *machine {
	return &machine{clock: c, capacity: capacity, changed: make(chan struct{})}
}

// Now returns the clock's time.
func (m *machine) Now() time.Time { return m.clock.Now() }

// Sleep waits for the time that some work takes on the shared machine.
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

// count records that a replica has begun or ended its work: the work of the other replicas then continues at another
// speed.
func (m *machine) count(n int) {
	m.busy += n
	close(m.changed)
	m.changed = make(chan struct{})
}
