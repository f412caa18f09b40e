package engine

import "fmt"

// backlog counts accepted sequences that have not run yet. Requests that would exceed its limits are refused at once
// instead of waiting long. A tenant that fills the queue does not block other tenants.
type backlog struct {
	most    int // maximum number of waiting sequences
	waiting int
	tenants map[string]queued // numbers of waiting sequences and requests, by tenant
}

// queued counts the waiting sequences of a tenant and the requests that they belong to.
type queued struct{ sequences, requests int }

// floodFactor is the maximum number of waiting sequences of all tenants, as a multiple of the maximum of one tenant.
const floodFactor = 4

// add counts n sequences of a tenant's request, or returns ErrQueueFull. If the whole queue is full, a tenant may still
// add sequences within its share, or its first request. A tenant may also queue a second request while at most one of
// its requests waits and one of the two has several choices: the choices of a large request are admitted one by one,
// and two such requests do not block each other.
func (b *backlog) add(tenant string, n int) error {
	own := b.tenants[tenant]
	owners := len(b.tenants)
	if own.requests == 0 {
		owners++
	}
	fits := b.waiting+n <= b.most
	large := own.requests <= 1 && max(own.sequences, n) > 1
	share := own.sequences+n <= b.most/owners || own.requests == 0 || large
	if !fits && (!share || b.waiting > 0 && b.waiting+n > floodFactor*b.most) {
		return fmt.Errorf("%w: %d sequences are waiting, %d of them from this tenant; the limit is %d, and %d per "+
			"tenant while other tenants wait", ErrQueueFull, b.waiting, own.sequences, b.most, b.most/owners)
	}
	if b.tenants == nil {
		b.tenants = map[string]queued{}
	}
	b.waiting += n
	b.tenants[tenant] = queued{own.sequences + n, own.requests + 1}
	return nil
}

// done removes a sequence that no longer waits; last reports whether it was the last waiting sequence of its request.
func (b *backlog) done(tenant string, last bool) {
	own := b.tenants[tenant]
	b.waiting--
	own.sequences--
	if last {
		own.requests--
	}
	if b.tenants[tenant] = own; own.sequences == 0 {
		delete(b.tenants, tenant)
	}
}
