package sched

import "sparrow/internal/kv"

// Sequence is one sequence from submission to its end. Its exported fields belong to the caller, who appends sampled
// tokens to Tokens.
type Sequence struct {
	Tokens []int32 // prompt and output; at most as many tokens as the pool holds
	Salt   []byte  // value of kv.OpenOptions.Salt
	// After, if set, is an older sequence with the same prompt: this sequence waits until that prompt is computed, and
	// then shares the pages of that sequence.
	After *Sequence
	// Logits is the number of tokens, counted from the end, for which rows of logits are requested; 0 means one. These
	// tokens are computed even if they are cached. The caller lowers it as rows are returned.
	Logits int
	// Record holds the positions whose rows are recorded. Replay holds the positions whose rows use given choices. The
	// caller advances Record as rows are returned.
	Record, Replay Span
	Owner          any
	// Tenant, Flow and Request are the owners of the sequence, for fair admission: a tenant has flows, a flow has
	// requests. A sequence without a request counts as its own request.
	Tenant, Flow string
	Request      any
	// Priority orders the sequences of a tenant; the highest is admitted first.
	Priority int
	// Background sequences use capacity that other sequences leave free: they are admitted last, suspended first, and
	// are not in batches that compute prompts of other sequences. They need tenants of their own.
	Background bool
	// Places limits the running sequences of the tenant: this sequence is admitted only while fewer sequences of its
	// tenant run; 0 means no limit.
	Places int
	// Drafts are guesses of the tokens after Tokens, for the next batch of a decoding sequence to verify: as many as
	// the batch allows. ReserveDrafts returns the maximum number. Drafts is emptied after the batch.
	Drafts []int32

	Match     kv.Match // tokens found in the cache at the latest admission
	Preempted int      // number of times that the sequence was suspended

	age     int64
	state   state
	request *account // account of the request while the sequence waits or runs
	turn    int      // number of sequences that the request added before this sequence
	cache   kv.Sequence
	rank    int // rank whose pool cache belongs to, while the sequence runs
	// restoring reports that the prefix is being copied from outside the pool, page by page; until that ends, the
	// sequence has no items.
	restoring bool
	reached   int  // largest position that was computed when the sequence was suspended
	ready     bool // all tokens of the latest admission are computed or in flight
	computed  bool // the prompt was computed at least once
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

// Item is the part of a batch that belongs to one sequence.
type Item struct {
	Seq *Sequence
	// Tokens are the tokens to compute: a part of Seq.Tokens, then drafts.
	Tokens []int32
	// Unknown reports that the item has one token whose value is sampled by the previous item: Tokens holds a zero.
	Unknown bool
	Drafts  int     // number of drafts at the end of Tokens
	Cached  int     // number of tokens before Tokens that are in the cache
	Rank    int     // rank that has the pages
	Decode  bool    // the item has one token that continues computed output, and perhaps drafts
	Logits  int     // number of rows of logits, for the last of Tokens
	Last    bool    // after the item all tokens are computed, so that the next token can be sampled
	Record  Span    // range of Tokens whose rows are recorded
	Pages   []int32 // pages of all Cached + len(Tokens) tokens
	// Windows are the window pages of all Cached + len(Tokens) tokens, negative for pages before the window; nil if the
	// pool has none.
	Windows []int32

	accepted int     // number of accepted drafts
	started  started // changes made by Started
}

// Kept returns how many of the item's tokens are part of the sequence: all except the rejected drafts.
func (it *Item) Kept() int { return len(it.Tokens) - it.Drafts + it.accepted }

// DraftTokens returns the item's drafts, which are the last of Tokens.
func (it *Item) DraftTokens() []int32 { return it.Tokens[len(it.Tokens)-it.Drafts:] }

// Pages returns the pages of a running sequence, including reserved pages.
func (q *Sequence) Pages() []int32 { return q.cache.Pages() }

// Windows returns the window pages of the sequence, nil if the pool has none.
func (q *Sequence) Windows() []int32 { return q.cache.Windows() }

// Rank returns the rank with the pages of a running sequence.
func (q *Sequence) Rank() int { return q.rank }

// left returns the number of tokens of a running sequence that are neither computed nor in flight.
func (q *Sequence) left() int { return q.length() - q.end() }

// decoding reports whether a running sequence continues with one sampled token.
func (q *Sequence) decoding() bool { return q.ready && q.left() == 1 }

// waitsForPrompt reports whether a waiting sequence must wait until another sequence has computed their common prompt,
// or until its own item in flight has ended.
func (q *Sequence) waitsForPrompt() bool {
	return q.flight.items > 0 || q.After != nil && !q.After.computed && q.After.state != stateGone
}

// waitsForPlace reports whether the tenant of a waiting sequence already runs as many sequences as Places allows.
func (q *Sequence) waitsForPlace() bool { return q.Places > 0 && q.tenant().running >= q.Places }

// Options returns the options with which the sequence is opened in the cache.
func (q *Sequence) Options() kv.OpenOptions { return kv.OpenOptions{Salt: q.Salt, Compute: q.Logits} }

// unscored returns how many of the next tokens of a running sequence need no row of logits.
func (q *Sequence) unscored() int { return max(q.left()-max(q.Logits, 1), 0) }

// logitRows returns how many rows of logits the next n tokens of a running sequence have.
func (q *Sequence) logitRows(n int) int { return max(n-q.unscored(), 0) }
