package tier

import (
	"context"
	"time"

	"sparrow/internal/kv/prefix"
)

// Occasion is the event on which a page is offered to tiers.
type Occasion uint8

// The occasions.
const (
	Stored  Occasion = iota // it became reusable
	Leaving                 // the device gives it up
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
	// Load delivers the pages of keys in order, with a reference each, until one is missing, the context ends, or
	// deliver returns false. It returns the number of delivered pages and why it stopped.
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
	Pages int64 // held now; 0 for a store, which others fill too
	Bytes int64 // that these take

	Hits     int64 // pages that returned
	HitBytes int64
	Stored   int64 // pages that it kept
	Evicted  int64 // pages that it gave up to make room
	Dropped  int64 // pages that it had no time or no room for
	Damaged  int64 // pages that it held and that could not be used
	Failed   int64 // calls that failed: files, network, or answers that make no sense
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
