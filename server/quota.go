package server

import (
	"fmt"
	"sync"
	"time"

	"sparrow/internal/wire"
)

// quotas enforces the limits of tenants. The token limit is a token bucket, which is refilled continuously up to the
// tokens of one minute. A request begins if the bucket has the tokens of its prompt, or is full. Generated tokens are
// subtracted as they arrive, so that the bucket may become negative.
type quotas struct {
	limits *Limits
	places int // maximum number of running sequences of all tenants
	now    func() time.Time

	mu      sync.Mutex
	tenants map[string]*quota // tenants with limits that have sent requests
}

type quota struct {
	limit   Limit
	running map[*quotaUse]time.Time // running requests and their start times
	tokens  float64                 // tokens in the bucket at the time at
	at      time.Time               // time of the last refill
	took    time.Duration           // moving mean of request durations; 0 before the first has ended
}

// quotaUse is a running request of a tenant with limits; it is nil for other requests.
type quotaUse struct {
	of      *quotas
	quota   *quota
	places  int
	charged int  // prompt tokens that were subtracted
	begun   bool // whether a prompt was accepted
	failed  bool // whether the engine refused the request
	// background is true for a line of a batch. It does not count as a request of its tenant, and begins only if the
	// bucket is at least half full.
	background bool
}

// begin counts a request, or refuses it. If it succeeds, the caller must call end.
func (q *quotas) begin(tenant string, background bool) (*quotaUse, error) {
	limit := q.limits.of(tenant)
	if limit == (Limit{}) {
		return nil, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	t := q.tenants[tenant]
	if t == nil {
		if q.tenants == nil {
			q.tenants = map[string]*quota{}
		}
		t = &quota{limit: limit, running: map[*quotaUse]time.Time{}, tokens: float64(limit.Tokens), at: now}
		q.tenants[tenant] = t
	}
	u := &quotaUse{of: q, quota: t, background: background}
	if limit.Share > 0 {
		u.places = max(int(limit.Share*float64(q.places)), 1)
	}
	if background {
		return u, nil
	}
	if n := len(t.running); limit.Requests > 0 && n >= limit.Requests {
		return nil, later(t.untilPlace(now), "%d requests of this tenant are running, the maximum is %d; send it "+
			"again after the time in Retry-After", n, limit.Requests)
	}
	t.running[u] = now
	return u, nil
}

// untilPlace estimates the time until a running request ends: the mean duration minus the time that the oldest one has
// run.
func (t *quota) untilPlace(now time.Time) time.Duration {
	oldest := time.Duration(0)
	for _, began := range t.running {
		oldest = max(oldest, now.Sub(began))
	}
	if t.took == 0 { // no request has ended yet
		return oldest
	}
	return t.took - oldest
}

// prompt subtracts the tokens of a prompt before it is queued, or refuses the request. After the first prompt of a
// request, the other prompts are not refused.
func (u *quotaUse) prompt(tokens int) error {
	if u == nil || u.quota.limit.Tokens == 0 {
		return nil
	}
	u.of.mu.Lock()
	defer u.of.mu.Unlock()
	t := u.quota
	t.fill(u.of.now())
	need := float64(min(tokens, t.limit.Tokens))
	if u.background {
		need = max(need, float64(t.limit.Tokens)/2)
	}
	if !u.begun && t.tokens < need {
		missing := (need - t.tokens) / float64(t.limit.Tokens)
		return later(time.Duration(missing*float64(time.Minute)), "this tenant has %d tokens per minute for prompts "+
			"and "+
			"outputs, %d are left now, and this prompt has %d: it is accepted once %d are left; send it again after "+
			"the time in Retry-After", t.limit.Tokens, max(int(t.tokens), 0), tokens, int(need))
	}
	u.begun = true
	u.charged += tokens
	t.tokens -= float64(tokens)
	return nil
}

// output subtracts generated tokens.
func (u *quotaUse) output(tokens int) {
	if u == nil || tokens == 0 || u.quota.limit.Tokens == 0 {
		return
	}
	u.of.mu.Lock()
	defer u.of.mu.Unlock()
	u.quota.fill(u.of.now())
	u.quota.tokens -= float64(tokens)
}

// refused adds the tokens of a request that the engine has refused to the bucket again.
func (u *quotaUse) refused() {
	if u == nil {
		return
	}
	u.of.mu.Lock()
	defer u.of.mu.Unlock()
	u.quota.tokens += float64(u.charged)
	u.charged, u.failed = 0, true
}

// tookShare is the weight of the last request in the moving mean of durations.
const tookShare = 0.2

// end records that a request has ended.
func (u *quotaUse) end() {
	if u == nil {
		return
	}
	u.of.mu.Lock()
	defer u.of.mu.Unlock()
	t := u.quota
	if u.background {
		return
	}
	if took := u.of.now().Sub(t.running[u]); !u.failed {
		if t.took == 0 {
			t.took = took
		}
		t.took += time.Duration(tookShare * float64(took-t.took))
	}
	delete(t.running, u)
}

// fill adds the tokens for the time since the last call to the bucket.
func (t *quota) fill(now time.Time) {
	most := float64(t.limit.Tokens)
	t.tokens = min(t.tokens+most*now.Sub(t.at).Minutes(), most)
	t.at = now
}

// laterError is an error with the time after which the request can be sent again.
type laterError struct {
	told  *wire.Error
	after time.Duration
}

// Error returns the message for the client.
func (e *laterError) Error() string { return e.told.Error() }

// Unwrap returns the error for the client.
func (e *laterError) Unwrap() error { return e.told }

func later(after time.Duration, format string, args ...any) error {
	return &laterError{wire.NewError(wire.CodeQueueFull, "", "%s", fmt.Sprintf(format, args...)), after}
}
