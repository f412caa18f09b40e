package engine

import "fmt"

// backlog counts accepted sequences that have not run yet, so that a request is refused before it waits for long. A
// tenant that fills the queue does not close it for others.
type backlog struct {
	most    int // sequences that may wait
	waiting int
	tenants map[string]int // of each tenant
}

// floodFactor bounds how many sequences wait, for all tenants together, as a multiple of what may wait.
const floodFactor = 4

// add counts n sequences of a tenant, or refuses them. While there is no space for them, a tenant still has its share
// of the queue, and one request if it has nothing waiting: the choices of a large request are admitted as they fit.
func (b *backlog) add(tenant string, n int) error {
	own := b.tenants[tenant]
	parties := len(b.tenants)
	if own == 0 {
		parties++
	}
	fits := b.waiting+n <= b.most
	share := own+n <= b.most/parties || own == 0
	if !fits && (!share || b.waiting > 0 && b.waiting+n > floodFactor*b.most) {
		return fmt.Errorf("%w: %d sequences wait, %d of this tenant; at most %d may, and %d of a tenant while others "+
			"wait", ErrQueueFull, b.waiting, own, b.most, b.most/parties)
	}
	if b.tenants == nil {
		b.tenants = map[string]int{}
	}
	b.waiting += n
	b.tenants[tenant] = own + n
	return nil
}

// done counts a sequence that waits no longer.
func (b *backlog) done(tenant string) {
	b.waiting--
	if b.tenants[tenant]--; b.tenants[tenant] == 0 {
		delete(b.tenants, tenant)
	}
}
