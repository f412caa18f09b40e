package engine

import (
	"bytes"
	"time"

	"sparrow/plan"
	"sparrow/record"
	"sparrow/sample"
	"sparrow/tokenizer"
)

// Request describes what to generate after a prompt of token ids.
type Request struct {
	ID       string // id of the request in logs and traces; if empty, an id is generated
	Prompt   []int32
	Sampling sample.Params
	// MaxTokens is the maximum number of tokens of each choice; 0 means as many tokens as the context holds.
	MaxTokens int
	// FitContext reduces a MaxTokens that is larger than the context allows after the prompt; otherwise such a request
	// is refused.
	FitContext bool
	// MinTokens is the minimum number of tokens of a choice. A complete document of a Guide ends the choice even
	// earlier.
	MinTokens int
	// Score requests log probabilities of the prompt's own tokens; nil computes none.
	Score *Score
	// IgnoreEOS continues after an end-of-sequence token, which adds no text. If the Guide has a document, the token
	// ends the choice anyway.
	IgnoreEOS bool
	Guide     Guide
	// Decoder returns a new decoder for one choice; if it is nil, events have no text.
	Decoder func() *tokenizer.Decoder
	// Draft is the number of tokens that are drafted at a time: nil means the engine's setting, 0 disables drafting.
	Draft *int
	// Tenant is the name of the request's owner, without NUL, for fair admission. Requests share cached pages only if
	// they have the same tenant and the same salt.
	Tenant, Salt string
	// Source is the origin of a request without a tenant, such as an address. The sources of such requests take turns;
	// all of them share cached pages.
	Source string
	// Requests of one tenant with different values of Flow take turns. Priority orders the tenant's requests, the
	// highest first.
	Flow     string
	Priority int
	// Background requests run when no other request can use the capacity. The tenants of background requests take
	// turns.
	Background bool
	// Places is the maximum number of running sequences of the tenant: a choice of this request is admitted only while
	// fewer of them run. 0 means no limit.
	Places int
	// Admit, if set, is called with the number of prompt tokens before the request is queued; an error refuses the
	// request.
	Admit func(tokens int) error
	Trace bool // records how the request was processed (Job.Trace)
	// Compiled is the period in which Guide was compiled, for the trace; zero if nothing was compiled.
	Compiled Period
	// Record selects the data that is recorded for the request's rows; nil records nothing.
	Record *Record
	// Replay holds recorded rows at consecutive positions. The rows at these positions use the recorded selections and
	// experts instead of computing them. Such a request shares no cached pages.
	Replay []record.Row
	// PagesFrom is the host and port of another engine from which cached pages of the prompt can be fetched; it may be
	// empty.
	PagesFrom string
}

// Score selects the tokens of the prompt that get log probabilities. Rows whose logits are needed are computed even if
// they are cached; other cached rows are reused. If several choices have the same prompt, only the first choice has the
// scores.
type Score struct {
	From int  // index of the first scored token of the prompt; token 0, which no token precedes, has rank 0
	Top  int  // number of alternatives for each token
	Only bool // no token is generated: choices end with FinishLength when their tokens are scored
	// Continuations are scored after the prompt, each as its own choice, and nothing is generated: From counts tokens
	// of the prompt and its continuation.
	Continuations [][]int32
}

// Job is one request inside the engine. After Submit, only the loop changes the job; the queue of events is shared with
// the reader.
type Job struct {
	setup   *setup
	inbox   *inbox // inbox that the job was added to
	request Request
	choices []*choice
	queue   queue

	open              int // number of choices that have not ended
	queued            int // number of choices that have not been in a batch
	cancelled, failed bool
	usage             Usage
	arrived, admitted time.Time
	first             time.Time // time of the first token
	trace             *Trace    // nil unless requested
	replay            *record.Replay
	salt              []byte // salt of the request's cached pages
	turnKey           string // key by which requests take turns
	records           int64  // maximum size of the recorded rows, in bytes
	computed          int    // number of prompt tokens whose rows are in the cache; guarded by the tally's lock
}

// Next waits for the next event. No event follows the event whose Last is set.
func (j *Job) Next() Event { return j.queue.pop() }

// Poll returns the next event if one is available. It does not wait.
func (j *Job) Poll() (Event, bool) { return j.queue.poll() }

// Waited returns how long the job waited for its first step. If it has not run yet, this is the time so far.
func (j *Job) Waited() time.Duration {
	j.inbox.tally.Lock()
	defer j.inbox.tally.Unlock()
	if j.admitted.IsZero() {
		return j.setup.now().Sub(j.arrived)
	}
	return j.admitted.Sub(j.arrived)
}

// Progress returns how many tokens of the prompt have been computed or found in the cache, and how many of these were
// found in the cache.
func (j *Job) Progress() (computed, cached int) {
	j.inbox.tally.Lock()
	defer j.inbox.tally.Unlock()
	return min(j.computed, j.usage.PromptTokens), j.usage.CachedTokens
}

// Usage returns the token counts of the job. It is complete once the last event was read.
func (j *Job) Usage() Usage { return j.usage }

// Trace returns the trace of the job; nil if no trace was requested. It is complete once the last event was read.
func (j *Job) Trace() *Trace { return j.trace }

// ID returns the request's id, given or generated.
func (j *Job) ID() string { return j.request.ID }

// Choices returns how many continuations the job has.
func (j *Job) Choices() int { return len(j.choices) }

// Cancel ends the job at the next iteration: choices that have not ended finish with FinishCancelled.
func (j *Job) Cancel() { j.inbox.cancel(j) }

// backgroundKey is the prefix of the turn keys of background requests. No other key begins with it: the name of a
// tenant contains no NUL, and the key of a source begins with a single NUL.
const backgroundKey = "\x00\x00"

// turnKey returns the key by which requests take turns: the tenant, or the source if there is no tenant. Names of
// tenants contain no NUL.
func turnKey(tenant, source string, background bool) string {
	if background {
		return backgroundKey + tenant
	}
	if tenant == "" && source != "" {
		return "\x00" + source
	}
	return tenant
}

// salt returns bytes that separate the request's pages from those of other requests: different pairs of tenant and salt
// give different results, because names of tenants contain no NUL.
func (r *Request) salt() []byte {
	if r.Salt == "" {
		return []byte(r.Tenant)
	}
	return []byte(r.Tenant + "\x00" + r.Salt)
}

// CacheSalt returns the external form of a salt of pages: the request's own salt, as its sender set it, preceded by the
// tenant's name and a NUL if there is a tenant.
func CacheSalt(salt []byte) string { return string(bytes.TrimPrefix(salt, []byte{0})) }

// complete sets the remaining fields of the trace of a job whose choices have all ended.
func (j *Job) complete(now time.Time) {
	if j.trace == nil {
		return
	}
	j.trace.ID, j.trace.Compiled = j.request.ID, j.request.Compiled
	j.trace.Arrived, j.trace.Admitted, j.trace.First, j.trace.Ended = j.arrived, j.admitted, j.first, now
	j.trace.Match, j.trace.Restored = j.choices[0].match, j.choices[0].restored
	for _, c := range j.choices {
		j.trace.Matches = append(j.trace.Matches, c.match)
		j.trace.Preempted += c.seq.Preempted
	}
	if !j.admitted.IsZero() {
		j.trace.Queued = j.admitted.Sub(j.arrived)
	}
	if !j.first.IsZero() {
		j.trace.Prefill, j.trace.Decode = j.first.Sub(j.admitted), now.Sub(j.first)
	}
}

// traceDrafts adds the numbers of verified and of accepted drafts to the trace.
func (j *Job) traceDrafts(judged, right int) {
	if j.trace == nil {
		return
	}
	for len(j.trace.Drafts) < judged {
		j.trace.Drafts = append(j.trace.Drafts, DraftCount{})
	}
	for i := range judged {
		j.trace.Drafts[i].Judged++
		if i < right {
			j.trace.Drafts[i].Right++
		}
	}
}

// tracePlan adds one forward pass with this plan to the trace.
func (j *Job) tracePlan(p *plan.Plan) {
	if j.trace == nil {
		return
	}
	j.trace.Steps++
	for i := range j.trace.Plans {
		if j.trace.Plans[i].Plan == p {
			j.trace.Plans[i].Steps++
			return
		}
	}
	j.trace.Plans = append(j.trace.Plans, PlanUse{Plan: p, Steps: 1})
}
