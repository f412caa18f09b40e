package sched

import "sparrow/internal/kv"

// Sequence is one sequence from submission to its end. Its exported fields belong to the caller, who appends sampled
// tokens to Tokens.
type Sequence struct {
	Tokens []int32 // prompt, then output; never more than the pool holds
	Salt   []byte  // kv.OpenOptions.Salt
	// After, when set, is an older sequence with the same prompt: this one waits until that prompt is computed and then
	// shares its pages.
	After *Sequence
	// Logits is for how many of the last tokens rows of logits are requested; 0 means one. These tokens are computed
	// although they may be cached. The caller lowers it as rows return.
	Logits int
	// Record are the positions whose rows are recorded, Replay those whose rows are given their choices. The caller
	// moves Record as rows return.
	Record, Replay Span
	Owner          any
	// Tenant, Flow and Request are the owners of the sequence, for fair admission: a tenant has flows, a flow has
	// requests. Without a request it is one of its own.
	Tenant, Flow string
	Request      any
	// Priority orders the sequences of a tenant: the highest is admitted first.
	Priority int
	// Background sequences run where others leave room: they are admitted last, suspended first, and left out of
	// batches that compute prompts of others. Give them tenants of their own.
	Background bool
	// Places is the number of running sequences of its tenant, itself included, up to which this one is admitted; 0
	// means no bound.
	Places int
	// Drafts are guesses of the tokens after Tokens, for the next batch of a decoding sequence to verify: as many as it
	// has room for. ReserveDrafts returns how many there may be. They are removed after the batch.
	Drafts []int32

	Match     kv.Match // what was found in the cache at the latest admission
	Preempted int      // times it was suspended

	age     int64
	state   state
	request *account // while it waits or runs
	turn    int      // sequences that its request added before it
	cache   kv.Sequence
	rank    int // whose pool cache is of, while it runs
	// restoring: its beginning comes from elsewhere, page by page; until that ends it has no items.
	restoring bool
	ready     bool // since the latest admission, all tokens it was admitted with were computed, or are in flight
	computed  bool // its prompt was computed once
	flight    flight

	verify []int32 // memory for the tokens of an item with drafts
}

type state uint8

const (
	stateNew state = iota
	stateWaiting
	stateRunning
	stateGone
)

// Item is one sequence's part of a batch.
type Item struct {
	Seq *Sequence
	// Tokens are to be computed: a part of Seq.Tokens, then drafts.
	Tokens []int32
	// Unknown reports that the item has one token whose value the item before it samples: Tokens holds a zero.
	Unknown bool
	Drafts  int     // how many of Tokens are drafts
	Cached  int     // tokens before them that are in the cache
	Rank    int     // that has their pages
	Decode  bool    // one token that continues computed output, and drafts
	Logits  int     // rows of logits, of the last of Tokens
	Last    bool    // afterwards all tokens are computed, and the next one can be sampled
	Record  Span    // which of Tokens are recorded
	Pages   []int32 // of all Cached + len(Tokens) tokens
	// Windows are their window pages, negative where the window has moved on; nil where the pool has none.
	Windows []int32

	accepted int     // drafts that were accepted
	started  started // what Started did
}

// Kept returns how many of the item's tokens are part of the sequence: all but the drafts that were not accepted.
func (it *Item) Kept() int { return len(it.Tokens) - it.Drafts + it.accepted }

// DraftTokens are the item's drafts, the last of Tokens.
func (it *Item) DraftTokens() []int32 { return it.Tokens[len(it.Tokens)-it.Drafts:] }

// Pages are the pages of a running sequence, with the reserved ones.
func (q *Sequence) Pages() []int32 { return q.cache.Pages() }

// Windows are the window pages of the sequence, nil where the pool has none.
func (q *Sequence) Windows() []int32 { return q.cache.Windows() }

// Rank is the rank that has the pages of a running sequence.
func (q *Sequence) Rank() int { return q.rank }

// left returns how many tokens of a running sequence are neither computed nor in flight.
func (q *Sequence) left() int { return q.length() - q.end() }

// decoding reports whether a running sequence continues with one token that was sampled.
func (q *Sequence) decoding() bool { return q.ready && q.left() == 1 }

// waitsForPrompt reports whether a waiting sequence must let another compute their common prompt first, or has an item
// in flight whose outcome is not known yet.
func (q *Sequence) waitsForPrompt() bool {
	return q.flight.items > 0 || q.After != nil && !q.After.computed && q.After.state != stateGone
}

// waitsForPlace reports whether a waiting sequence's tenant has as many sequences running as it may.
func (q *Sequence) waitsForPlace() bool { return q.Places > 0 && q.tenant().running >= q.Places }

// Options state how the sequence may use the cache.
func (q *Sequence) Options() kv.OpenOptions { return kv.OpenOptions{Salt: q.Salt, Compute: q.Logits} }

// unscored returns how many of the next tokens of a running sequence need no row of logits.
func (q *Sequence) unscored() int { return max(q.left()-max(q.Logits, 1), 0) }

// logitRows returns how many rows of logits the next n tokens of a running sequence have.
func (q *Sequence) logitRows(n int) int { return max(n-q.unscored(), 0) }
