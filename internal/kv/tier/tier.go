package tier

import (
	"context"
	"time"

	"sparrow/internal/kv/prefix"
)

// Occasion is the event for which a page is offered to tiers.
type Occasion uint8

// Occasions.
const (
	Stored  Occasion = iota // the page became reusable
	Leaving                 // the device will evict the page
)

// Tier stores pages. Its methods are safe for concurrent use.
type Tier interface {
	// Name returns a word for logs and metrics.
	Name() string
	// Wants reports whether Put would store a page on this occasion. It does not block.
	Wants(prefix.Hash, Occasion) bool
	// Put stores a page, or drops it. It adds a reference to a stored page, and does not block on files or the network.
	Put(*Page)
	// Has reports whether the tier may have a page. It does not block.
	Has(prefix.Hash) bool
	// Load delivers the pages of keys in order, each with a reference. It stops if a page is missing, the context ends,
	// or deliver returns false. It returns the number of delivered pages and the reason why it stopped.
	Load(ctx context.Context, keys []prefix.Hash, room func(context.Context) *Page, deliver func(*Page) bool) (int,
		string)
	// Clear drops all pages.
	Clear()
	Count() Count
	Close() error
}

// Count holds the number of pages and the counters of a tier.
type Count struct {
	Tier  string
	Pages int64 // number of pages; 0 for a store, which other servers also use
	Bytes int64 // bytes of these pages

	Hits     int64 // pages that the tier returned
	HitBytes int64
	Stored   int64 // pages that the tier stored
	Evicted  int64 // pages that the tier evicted because it was full
	Dropped  int64 // pages that were not stored because the tier was full or too slow
	Damaged  int64 // stored pages that were damaged
	Failed   int64 // file system calls and requests that failed, or had invalid results
	Busy     time.Duration
	// Stops counts, by reason, the pages that the tier has not returned.
	Stops map[string]int64
}

// noListener is a listener that does nothing.
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
