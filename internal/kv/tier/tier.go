package tier

import (
	"context"
	"time"

	"sparrow/internal/kv/prefix"
)

// Occasion is the event on which a page is offered to tiers.
type Occasion uint8

// Occasions on which a page is offered.
const (
	Stored  Occasion = iota // the page became reusable
	Leaving                 // the device evicts the page
)

// Tier stores pages. Its methods may be called from any goroutine.
type Tier interface {
	// Name returns a short word for logs and metrics.
	Name() string
	// Wants reports, without waiting, whether Put would store a page on this occasion.
	Wants(prefix.Hash, Occasion) bool
	// Put stores a page, or drops it. It holds a reference to the page and does not wait for files or the network.
	Put(*Page)
	// Has reports, without waiting, whether the tier may hold a page.
	Has(prefix.Hash) bool
	// Load delivers the pages of keys in order, each with a reference, until a page is missing, the context ends, or
	// deliver returns false. It returns the number of delivered pages and the reason why it stopped.
	Load(ctx context.Context, keys []prefix.Hash, room func(context.Context) *Page, deliver func(*Page) bool) (int,
		string)
	// Clear drops every page.
	Clear()
	Count() Count
	Close() error
}

// Count holds the size and the counters of a tier.
type Count struct {
	Tier  string
	Pages int64 // number of pages in the tier; 0 for a store, which other servers also fill
	Bytes int64 // size of these pages in bytes

	Hits     int64 // pages that the tier returned
	HitBytes int64
	Stored   int64 // pages that the tier stored
	Evicted  int64 // pages that the tier evicted to make room
	Dropped  int64 // pages that were not stored because the tier was too slow or full
	Damaged  int64 // stored pages that could not be used
	Failed   int64 // calls that failed: of files or the network, or with invalid answers
	Busy     time.Duration
	// Stops counts, by reason, how often the tier did not return the next page of a prompt.
	Stops map[string]int64
}

// noListener ignores all calls.
type noListener struct{}

func (noListener) Stored(prefix.Stored) {}
func (noListener) Removed(prefix.Hash)  {}
func (noListener) Cleared()             {}

// listener returns l, or a listener that does nothing if l is nil.
func listener(l prefix.Listener) prefix.Listener {
	if l == nil {
		return noListener{}
	}
	return l
}
