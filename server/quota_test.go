package server

import (
	"errors"
	"strings"
	"testing"
	"time"

	"sparrow"
	"sparrow/internal/testkit/await"
)

func TestLimitsAreRead(t *testing.T) {
	for _, c := range []struct {
		name, text string
		tenant     string
		want       Limit
		says       string // part of the error message
	}{
		{"all three", "a requests=8 tokens=60000 share=0.5", "a", Limit{8, 60000, 0.5}, ""},
		{"as a flag", "a:requests=8,tokens=60000/min,share=50%;*:requests=2", "a", Limit{8, 60000, 0.5}, ""},
		{"everybody else", "a:requests=8;*:requests=2", "b", Limit{Requests: 2}, ""},
		{"nobody else", "a requests=8", "b", Limit{}, ""},
		{"lines and comments", "# ours; b tokens=1\n\n  a  share=1 \r\nb requests=1\n", "a", Limit{Share: 1}, ""},
		{"nothing", "# ours\n", "", Limit{}, "the list has no limits"},
		{"no limit", "a", "", Limit{}, "has no limits"},
		{"only a colon", "a:", "", Limit{}, "no limit"},
		{"no name", ":requests=1", "", Limit{}, "no name"},
		{"twice", "a requests=1; a requests=2", "", Limit{}, "named twice"},
		{"another word", "a rpm=1", "", Limit{}, "want requests, tokens or share"},
		{"no number", "a requests=many", "", Limit{}, "want a number from 1"},
		{"zero", "a tokens=0", "", Limit{}, "want a number from 1"},
		{"a share of nothing", "a share=0", "", Limit{}, "want a share"},
		{"more than all", "a share=101%", "", Limit{}, "want a share"},
		{"not a number", "a share=NaN", "", Limit{}, "want a share"},
		{"which line", "a share=1\nb share=2", "", Limit{}, "line 2"},
		{"as long as it may be", "a share=1\n#" + strings.Repeat("x", maxLimitsBytes-11), "a", Limit{Share: 1}, ""},
		{"a byte too long", "a share=1\n#" + strings.Repeat("x", maxLimitsBytes-10), "", Limit{}, "longer than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := ReadLimits(strings.NewReader(c.text))
			if c.says != "" {
				if err == nil || !errors.Is(err, ErrLimits) || !strings.Contains(err.Error(), c.says) {
					t.Fatalf("error %v, want one with %q", err, c.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := l.of(c.tenant); got != c.want {
				t.Errorf("%q may use %+v, want %+v", c.tenant, got, c.want)
			}
		})
	}
	if _, err := LoadLimits("/no/such/file"); !errors.Is(err, ErrLimits) {
		t.Errorf("a file that is not there: %v", err)
	}
	l, _ := ReadLimits(strings.NewReader("a requests=1"))
	err := (Options{Limits: l}).Validate()
	if err == nil || !strings.Contains(err.Error(), `no key belongs to tenant "a"`) {
		t.Errorf("limits of a tenant without a key: %v", err)
	}
}

// quotaOf returns a server's quotas with a clock that the test controls.
func quotaOf(t *testing.T, text string) (q *quotas, clock *time.Time) {
	t.Helper()
	l, err := ReadLimits(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	return &quotas{limits: l, places: 64, now: func() time.Time { return now }}, &now
}

func mustBegin(t *testing.T, q *quotas, tenant string) *quotaUse {
	t.Helper()
	u, err := q.begin(tenant, false)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// wantLater checks that err is a refusal that asks the client to retry after the given time.
func wantLater(t *testing.T, err error, after time.Duration) {
	t.Helper()
	var refused *laterError
	if !errors.As(err, &refused) || refused.after.Round(time.Millisecond) != after {
		t.Fatalf("%v, want a refusal for %v", err, after)
	}
}

func TestRequestsAtOnce(t *testing.T) {
	q, clock := quotaOf(t, "a requests=2 share=0.25; *: share=0.001")
	if u := mustBegin(t, q, "b"); u.places != 1 {
		t.Errorf("a small share gives %d places, want 1", u.places)
	}
	first, second := mustBegin(t, q, "a"), mustBegin(t, q, "a")
	if first.places != 16 {
		t.Errorf("%d places of 64, want 16", first.places)
	}
	*clock = clock.Add(3 * time.Second)
	_, err := q.begin("a", false)
	wantLater(t, err, 3*time.Second) // no request has ended, so the estimate is the time that the running one has taken
	*clock = clock.Add(7 * time.Second)
	first.end()
	third := mustBegin(t, q, "a")
	*clock = clock.Add(-4 * time.Second) // the second request has run for six seconds, and the first took ten
	_, err = q.begin("a", false)
	wantLater(t, err, 4*time.Second)
	second.end()
	third.end()
	if u := mustBegin(t, q, "a"); len(u.quota.running) != 1 {
		t.Errorf("%d run, want 1", len(u.quota.running))
	}
}

func TestTokensAMinute(t *testing.T) {
	q, clock := quotaOf(t, "* tokens=6000")
	ask := func(tenant string, tokens int) (*quotaUse, error) {
		u := mustBegin(t, q, tenant)
		err := u.prompt(tokens)
		if err != nil {
			u.refused()
			u.end()
		}
		return u, err
	}
	first, err := ask("a", 4000)
	if err != nil {
		t.Fatal(err)
	}
	first.output(1000)
	first.end()
	_, err = ask("a", 2000)
	wantLater(t, err, 10*time.Second) // 1000 tokens are left, and 100 are added every second
	if _, err := ask("b", 6000); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	*clock = clock.Add(10 * time.Second)
	second, err := ask("a", 2000)
	if err != nil {
		t.Fatalf("after the time it was told: %v", err)
	}
	second.output(3000)
	_, err = ask("a", 1)
	wantLater(t, err, 30*time.Second+10*time.Millisecond)
	*clock = clock.Add(time.Hour)
	// A request with more tokens than a minute's budget is accepted when the budget is full. All prompts of a request
	// count together.
	large, err := ask("a", 50_000)
	if err != nil {
		t.Fatalf("a large request on an idle server: %v", err)
	}
	if err := large.prompt(10_000); err != nil {
		t.Errorf("the second prompt of a request that was taken: %v", err)
	}
	if large.quota.tokens != 6000-60_000 {
		t.Errorf("%.0f tokens are left", large.quota.tokens)
	}
	large.refused()
	large.end()
	if _, err := ask("a", 6000); err != nil {
		t.Errorf("after a request that the engine refused: %v", err)
	}
	if n := len(q.tenants["a"].running); n != 2 { // the second and the last request run
		t.Errorf("%d run, want 2", n)
	}
}

// A refused request gets 429 and the time after which it would be accepted. Other tenants are not affected, and
// generated tokens count too.
func TestLimitsOverHTTP(t *testing.T) {
	keys, err := ReadKeys(strings.NewReader("key-a a\nkey-b b\n"))
	if err != nil {
		t.Fatal(err)
	}
	limits, err := ReadLimits(strings.NewReader("a requests=1 tokens=600 share=0.5"))
	if err != nil {
		t.Fatal(err)
	}
	e := newFake(saying("x", "y"))
	hold := make(chan struct{})
	e.pause = func(int) { <-hold }
	s, hs := start(t, e, Options{Keys: keys, Limits: limits})
	now := time.Unix(1000, 0)
	s.quotas.now = func() time.Time { return now }
	const path, body = "/v1/completions", `{"model":"sparrow-test","prompt":"hello","max_tokens":2}`
	done := make(chan reply, 1)
	go func() { done <- post(t, hs.URL+path, body, "Authorization", "Bearer key-a") }()
	await.True(t, "the first request", func() bool { return e.opened() == 1 })
	got := post(t, hs.URL+path, body, "Authorization", "Bearer key-a")
	if got.status != 429 || got.header.Get("Retry-After") != "1" ||
		!strings.Contains(got.body, "1 requests of this tenant are running") {
		t.Errorf("a second request: %d, after %q: %s", got.status, got.header.Get("Retry-After"), got.body)
	}
	close(hold)
	if got := <-done; got.status != 200 || e.last(t).Places != 2 {
		t.Errorf("the first request: %d with %d places: %s", got.status, e.last(t).Places, got.body)
	}
	if got := post(t, hs.URL+path, body, "Authorization", "Bearer key-b"); got.status != 200 || e.last(t).Places != 0 {
		t.Errorf("another tenant: %d with %d places: %s", got.status, e.last(t).Places, got.body)
	}
	// Of 600 tokens the first prompt used 5 and its answer 2. The next prompt has 600 tokens, so 7 are missing, which
	// takes 0.7 s.
	long := `{"model":"sparrow-test","prompt":"` + strings.Repeat("x", 600) + `","max_tokens":2}`
	got = post(t, hs.URL+path, long, "Authorization", "Bearer key-a")
	if got.status != 429 || got.header.Get("Retry-After") != "1" || !strings.Contains(got.body, "593 are left") {
		t.Errorf("tokens: %d, after %q: %s", got.status, got.header.Get("Retry-After"), got.body)
	}
	now = now.Add(700 * time.Millisecond)
	if got := post(t, hs.URL+path, long, "Authorization", "Bearer key-a"); got.status != 200 {
		t.Errorf("tokens after 0.7 s: %d: %s", got.status, got.body)
	}
}

// For a full queue, Retry-After is the estimated wait of the tenant's requests, and /ready reports the shortest wait of
// all tenants.
func TestWaitsAreTold(t *testing.T) {
	keys, err := ReadKeys(strings.NewReader("key-a a\nkey-b b\n"))
	if err != nil {
		t.Fatal(err)
	}
	e := newFake(func(sparrow.Request) ([]sparrow.Event, error) { return nil, sparrow.ErrQueueFull })
	e.waits = map[string]time.Duration{"a": 41 * time.Second, "b": 2500 * time.Millisecond}
	_, hs := start(t, e, Options{Keys: keys, MaxWait: 3 * time.Second})
	for key, want := range map[string]string{"key-a": "41", "key-b": "3"} {
		got := post(t, hs.URL+"/v1/chat/completions", hello+`}`, "Authorization", "Bearer "+key)
		if got.status != 429 || got.header.Get("Retry-After") != want {
			t.Errorf("%s: %d, after %q, want 429 after %s", key, got.status, got.header.Get("Retry-After"), want)
		}
	}
	if got := get(t, hs.URL+"/ready"); got.status != 200 {
		t.Errorf("while one tenant waits for less: %d: %s", got.status, got.body)
	}
	e.waits["b"] = 3500 * time.Millisecond
	if got := get(t, hs.URL+"/ready"); got.status != 503 || !strings.Contains(got.body, `"wait_seconds":3.5`) ||
		!strings.Contains(got.body, "longer than 3s") {
		t.Errorf("while all wait for longer: %d: %s", got.status, got.body)
	}
}
