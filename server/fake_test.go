package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sparrow"
	"sparrow/chat"
	"sparrow/internal/kv"
	"sparrow/plan"
)

// fakeEngine is an engine that plays scripted events. Each byte is a token whose id is the byte, and id 1 begins a
// text.
type fakeEngine struct {
	info    sparrow.Info
	waits   map[string]time.Duration // estimated wait of each tenant
	plans   []sparrow.PlanRecord
	ignored []sparrow.Ignored
	// script returns the engine's events for a request. If none of them is a last event, the stream waits for the end
	// of its context.
	script func(r sparrow.Request) ([]sparrow.Event, error)
	// pause, if set, is called before every event.
	pause func(i int)

	mu       sync.Mutex
	stats    sparrow.Stats
	requests []sparrow.Request
	open     int // number of streams that are not closed yet
	settled  int
	orders   []string
	flushed  int
	ended    chan struct{} // receives a value when the context of a stream ends
}

func newFake(script func(r sparrow.Request) ([]sparrow.Event, error)) *fakeEngine {
	return &fakeEngine{
		script: script,
		ended:  make(chan struct{}, 64),
		info: sparrow.Info{
			Name: "sparrow-test", Family: "deepseek_v32", Created: time.Unix(1700000000, 0), Vocabulary: 256,
			ContextTokens: 4096, CacheTokens: 8192, PageTokens: 64, Pages: 128, MaxQueue: 8, MaxRunning: 4,
			Kernels: "ref", Config: plan.Config{N: 1, Fingerprint: 0xabc},
		},
	}
}

func (e *fakeEngine) Stream(ctx context.Context, r sparrow.Request) (Stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if r.Admit != nil {
		if err := r.Admit(len(r.Tokens) + len(r.Prompt)); err != nil {
			return nil, err
		}
	}
	events, err := e.script(r)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests = append(e.requests, r)
	e.open++
	return &fakeStream{engine: e, ctx: ctx, events: events}, nil
}

func (e *fakeEngine) Info() sparrow.Info { return e.info }

func (e *fakeEngine) Sleep(_ context.Context, abort bool) error {
	e.note(fmt.Sprintf("sleep %t", abort))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Asleep = true
	return nil
}

func (e *fakeEngine) Wake(context.Context) error {
	e.note("wake")
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Asleep = false
	return nil
}

func (e *fakeEngine) UpdateWeights(_ context.Context, dir string, abort bool) error {
	e.note(fmt.Sprintf("update %s %t", filepath.Base(dir), abort))
	if strings.HasSuffix(dir, "bad") {
		return fmt.Errorf("%w: another shape", sparrow.ErrRequest)
	}
	return nil
}

// note records a call of an administrative method.
func (e *fakeEngine) note(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.orders = append(e.orders, text)
}

func (e *fakeEngine) Settle(context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settled++
}

func (e *fakeEngine) Stats() sparrow.Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stats
}

func (e *fakeEngine) Wait(tenant, _ string) time.Duration { return e.waits[tenant] }

func (e *fakeEngine) Plans() []sparrow.PlanRecord { return e.plans }

func (e *fakeEngine) Encode(text string, addSpecial bool) ([]int32, error) {
	var ids []int32
	if addSpecial {
		ids = append(ids, 1)
	}
	for i := range len(text) {
		ids = append(ids, int32(text[i]))
	}
	return ids, nil
}

func (e *fakeEngine) Decode(ids []int32) (string, error) {
	b := make([]byte, len(ids))
	for i, id := range ids {
		if id < 0 || id > 255 {
			return "", &sparrow.RequestError{Field: "tokens", Reason: fmt.Sprintf("%d is not a token", id)}
		}
		b[i] = byte(id)
	}
	return string(b), nil
}

func (e *fakeEngine) EncodeChat(r *chat.Request, addSpecial bool) ([]int32, error) {
	var b strings.Builder
	for _, m := range r.Messages {
		if m.Role == chat.Developer {
			return nil, fmt.Errorf("%w: messages[0].role: developer is not a role of this model", chat.ErrRequest)
		}
		fmt.Fprintf(&b, "<%s>%s", m.Role, m.Content)
	}
	return e.Encode(b.String(), addSpecial)
}

func (e *fakeEngine) Flush(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flushed++
	return nil
}

// last returns the latest request.
func (e *fakeEngine) last(t *testing.T) sparrow.Request {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.requests) == 0 {
		t.Fatal("the engine got no request")
	}
	return e.requests[len(e.requests)-1]
}

// opened returns the number of streams that were not closed yet.
func (e *fakeEngine) opened() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.open
}

type fakeStream struct {
	engine *fakeEngine
	ctx    context.Context
	events []sparrow.Event
	at     int
	done   bool
	closed bool
}

func (s *fakeStream) Next() (sparrow.Event, bool) {
	if s.done {
		return sparrow.Event{}, false
	}
	if s.engine.pause != nil {
		s.engine.pause(s.at)
	}
	if s.at == len(s.events) || s.ctx.Err() != nil {
		<-s.ctx.Done()
		s.done = true
		s.engine.ended <- struct{}{}
		return sparrow.Event{Finish: sparrow.FinishCancelled, Usage: &sparrow.Usage{PromptTokens: 1}}, true
	}
	ev := s.events[s.at]
	s.at++
	s.done = ev.Usage != nil
	return ev, true
}

func (s *fakeStream) PromptTokens() int { return 7 }

func (s *fakeStream) Progress() (computed, cached int) { return 5, 4 }

func (s *fakeStream) Waited() time.Duration { return 25 * time.Millisecond }

func (s *fakeStream) Ignored() []sparrow.Ignored { return s.engine.ignored }

func (s *fakeStream) Close() {
	if s.closed {
		return
	}
	s.closed = true
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.engine.open--
}

// say returns the events of one choice that outputs the pieces in order and then stops.
func say(pieces ...string) []sparrow.Event {
	var list []sparrow.Event
	for _, p := range pieces {
		list = append(list, sparrow.Event{Text: p, Deltas: []chat.Delta{{Kind: chat.DeltaContent, Text: p}},
			Tokens: []sparrow.Token{{ID: int32(p[0]), Text: p, Logprob: -0.5}}})
	}
	return append(list, sparrow.Event{Finish: sparrow.FinishStop, Usage: usage(len(pieces))})
}

func usage(completion int) *sparrow.Usage {
	return &sparrow.Usage{PromptTokens: 7, CachedTokens: 4, CompletionTokens: completion}
}

// saying returns a script that outputs the same pieces for every request.
func saying(pieces ...string) func(sparrow.Request) ([]sparrow.Event, error) {
	return playing(say(pieces...)...)
}

func playing(events ...sparrow.Event) func(sparrow.Request) ([]sparrow.Event, error) {
	return func(sparrow.Request) ([]sparrow.Event, error) { return events, nil }
}

// fixed replaces the random values and the clock of a server by predictable ones.
func fixed(s *Server) {
	s.now = func() time.Time { return time.Unix(1700000001, 0) }
	s.seed = func() int64 { return 42 }
}

// start serves an engine over real connections.
func start(t *testing.T, e Engine, o Options) (*Server, *httptest.Server) {
	t.Helper()
	s, err := New(e, o)
	if err != nil {
		t.Fatal(err)
	}
	fixed(s)
	hs := httptest.NewServer(s.Handler())
	t.Cleanup(hs.Close)
	return s, hs
}

// reply is a response whose body was read completely.
type reply struct {
	status int
	header http.Header
	body   string
}

// post sends a JSON body with the request id "t1" and returns the reply.
func post(t *testing.T, url, body string, header ...string) reply {
	t.Helper()
	return send(t, http.MethodPost, url, body,
		append([]string{"Content-Type", "application/json", requestIDHeader, "t1"}, header...)...)
}

func get(t *testing.T, url string, header ...string) reply {
	t.Helper()
	return send(t, http.MethodGet, url, "", header...)
}

func send(t *testing.T, method, url, body string, header ...string) reply {
	t.Helper()
	return sendBy(t, http.DefaultClient, method, url, body, header...)
}

// sendBy sends a request through a client; header holds names and values in turn.
func sendBy(t *testing.T, by *http.Client, method, url, body string, header ...string) reply {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := by.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header, string(text)}
}

var aMatch = kv.Match{Tokens: 64, Pages: 1, Prompt: 70, Stop: 3, At: 66}

func itoa(n int) string { return strconv.Itoa(n) }

// newPost returns a request with a JSON body.
func newPost(t *testing.T, ctx context.Context, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	return r
}
