package clienttest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"sparrow"
	"sparrow/internal/kv/tier"
	"sparrow/internal/testkit/await"
	"sparrow/server"
)

// spanTree returns the spans below root as text: names in order of time, each followed by its children in brackets.
func spanTree(all tracetest.SpanStubs, root tracetest.SpanStub) string {
	var below []tracetest.SpanStub
	for _, s := range all {
		if s.Parent.SpanID() == root.SpanContext.SpanID() && s.SpanContext.TraceID() == root.SpanContext.TraceID() {
			below = append(below, s)
		}
	}
	slices.SortStableFunc(below, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	if len(below) == 0 {
		return root.Name
	}
	var names []string
	for _, s := range below {
		names = append(names, spanTree(all, s))
	}
	return root.Name + "[" + strings.Join(names, " ") + "]"
}

// traced is a server that keeps its spans in memory.
type traced struct {
	*service
	spans *tracetest.InMemoryExporter
}

func startTraced(t *testing.T, c sparrow.Config, o server.Options) *traced {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSampler(sdk.ParentBased(sdk.NeverSample())), sdk.WithSyncer(spans))
	o.Traces = provider
	return &traced{start(t, c, o), spans}
}

// send sends a completion whose traceparent contains the number n of the request.
func (s *traced) send(t *testing.T, ctx context.Context, n int, path, body string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("traceparent", fmt.Sprintf("00-%032x-%016x-01", n, n))
	return http.DefaultClient.Do(r)
}

func (s *traced) whole(t *testing.T, n int, path, body string) string {
	t.Helper()
	r, err := s.send(t, t.Context(), n, path, body)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", r.Status, text, err)
	}
	return string(text)
}

// root waits for the end of the n-th request and returns its span.
func (s *traced) root(t *testing.T, n int) (root tracetest.SpanStub, all tracetest.SpanStubs) {
	t.Helper()
	await.True(t, "the span of the request ends", func() bool {
		all = s.spans.GetSpans()
		i := slices.IndexFunc(all, func(x tracetest.SpanStub) bool {
			return x.Parent.IsRemote() && x.Parent.SpanID().String() == fmt.Sprintf("%016x", n)
		})
		if i >= 0 {
			root = all[i]
		}
		return i >= 0
	})
	if got := root.SpanContext.TraceID().String(); got != fmt.Sprintf("%032x", n) {
		t.Errorf("trace %s of request %d", got, n)
	}
	return root, all
}

// attributeOf returns the value of an attribute of a span below root, or of root itself.
func attributeOf(all tracetest.SpanStubs, root tracetest.SpanStub, span, name string) attribute.Value {
	for _, s := range all {
		if s.SpanContext.TraceID() != root.SpanContext.TraceID() || s.Name != span {
			continue
		}
		for _, kv := range s.Attributes {
			if string(kv.Key) == name {
				return kv.Value
			}
		}
	}
	return attribute.Value{}
}

// locked is a log that several goroutines write.
type locked struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// The server records the spans of a request with a schema and of a request that calls a tool, and none for a request
// whose trace is not sampled.
func TestSpansOfARequest(t *testing.T) {
	log := &locked{}
	s := startTraced(t, sparrow.Config{}, server.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	for n := 1; n <= 2; n++ { // the second request finds the prompt of the first in the cache
		s.whole(t, n, "/v1/chat/completions", `{"model": "sparrow-tiny", "temperature": 0, "max_tokens": 40,
			"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object",
			"properties": {"a": {"type": "integer", "maximum": 9}}, "required": ["a"], "additionalProperties": false}}},
			"messages": [{"role": "user", "content": "`+strings.Repeat("Name a number. ", 40)+`"}]}`)
	}
	root, all := s.root(t, 2)
	want := "POST /v1/chat/completions[schema.compile queue prefix.match prefill decode]"
	if got := spanTree(all, root); got != want {
		t.Errorf("spans %s, want %s", got, want)
	}
	for name, want := range map[string]string{"http.route": "/v1/chat/completions",
		"http.response.status_code": "200"} {
		if got := attributeOf(all, root, root.Name, name).String(); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if n := attributeOf(all, root, "prefill", "sparrow.cached_tokens").AsInt64(); n < 64 {
		t.Errorf("%d cached tokens", n)
	}
	if plans := attributeOf(all, root, "decode", "sparrow.plans").AsStringSlice(); len(plans) == 0 {
		t.Error("no plans")
	}
	await.True(t, "the log has the trace", func() bool {
		return strings.Contains(log.String(), fmt.Sprintf("trace_id=%032x", 2))
	})

	s.whole(t, 3, "/v1/chat/completions", `{"model": "sparrow-tiny", "temperature": 0, "tool_choice": "required",
		"tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
		"properties": {"city": {"type": "string", "maxLength": 8}}, "required": ["city"]}}}], "max_tokens": 200,
		"messages": [{"role": "user", "content": "What is the weather in Paris?"}]}`)
	root, all = s.root(t, 3)
	want = "POST /v1/chat/completions[schema.compile queue prefix.match prefill decode[tools.parse]]"
	if got := spanTree(all, root); got != want {
		t.Errorf("spans %s, want %s", got, want)
	}
	if n := attributeOf(all, root, "tools.parse", "sparrow.tool_calls").AsInt64(); n < 1 {
		t.Errorf("%d calls", n)
	}

	known := len(s.spans.GetSpans())
	// This request is sent without a traceparent.
	if r := s.raw(t, whole(post(fields(""), jsonType))); r.status != http.StatusOK {
		t.Errorf("status %d: %s", r.status, r.body)
	}
	s.whole(t, 4, "/v1/completions", `{"model": "sparrow-tiny", "prompt": ["a", "b"], "max_tokens": 1}`)
	root, all = s.root(t, 4)
	if got := spanTree(all, root); strings.Count(got, "decode") != 2 || len(all) != known+9 {
		t.Errorf("spans %s, %d more", got, len(all)-known)
	}
}

// When a client disconnects, the spans of all stages end with the request, and the request's span is marked as
// cancelled.
func TestSpansOfACancelledRequest(t *testing.T) {
	s := startTraced(t, sparrow.Config{}, server.Options{})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	r, err := s.send(t, ctx, 7, "/v1/completions", `{"model": "sparrow-tiny", "prompt": "a", "ignore_eos": true,
		"max_tokens": 8000, "stream": true}`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Body.Read(make([]byte, 1)); err != nil { // it decodes
		t.Fatal(err)
	}
	leave()
	r.Body.Close()
	root, all := s.root(t, 7)
	if got, want := spanTree(all, root), "POST /v1/completions[queue prefix.match prefill decode]"; got != want {
		t.Errorf("spans %s, want %s", got, want)
	}
	if got := attributeOf(all, root, "decode", "sparrow.finish").AsString(); got != "cancelled" {
		t.Errorf("the decode ended by %q", got)
	}
	if got := attributeOf(all, root, root.Name, "error.type").AsString(); got != "client_gone" {
		t.Errorf("the request ended by %q", got)
	}
}

// If a request is suspended for one of a higher priority, the time in which it does not run is recorded as a span.
func TestSpansOfAPreemptedRequest(t *testing.T) {
	s := startTraced(t, sparrow.Config{MaxRunning: 1}, server.Options{})
	r, err := s.send(t, t.Context(), 1, "/v1/completions", `{"model": "sparrow-tiny", "prompt": "a", "ignore_eos": true,
		"max_tokens": 1000, "stream": true, "priority": 5}`)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if _, err := r.Body.Read(make([]byte, 1)); err != nil { // it decodes
		t.Fatal(err)
	}
	s.whole(t, 2, "/v1/completions", `{"model": "sparrow-tiny", "prompt": "b", "max_tokens": 3, "priority": 1}`)
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		t.Fatal(err)
	}
	root, all := s.root(t, 1)
	want := "POST /v1/completions[queue prefix.match prefill decode[suspended]]"
	if got := spanTree(all, root); got != want {
		t.Errorf("spans %s, want %s", got, want)
	}
	if n := attributeOf(all, root, "decode", "sparrow.preempted").AsInt64(); n != 1 {
		t.Errorf("preempted %d times", n)
	}
	other, _ := s.root(t, 2)
	for _, x := range all {
		if x.Name == "suspended" && (x.EndTime.Before(other.StartTime) || x.StartTime.After(other.EndTime)) {
			t.Error("it was suspended at another time than the other ran")
		}
	}
}

// A prompt whose pages were evicted is restored from a tier while it waits in the queue. The wait is recorded as a
// span, and the prefix is matched after it.
func TestSpansOfARestoredRequest(t *testing.T) {
	for name, o := range map[string]tier.Options{"host": {HostBytes: 16 << 20},
		"disk": {DiskDir: t.TempDir(), DiskBytes: 1 << 28}} {
		t.Run(name, func(t *testing.T) {
			o.Wait = time.Hour // long enough for a machine under any load
			s := startTraced(t, sparrow.Config{CacheTokens: 512, Tiers: o}, server.Options{})
			ask := func(n int, text string) {
				s.whole(t, n, "/v1/completions", `{"model": "sparrow-tiny", "max_tokens": 1, "temperature": 0,
					"prompt": "`+strings.Repeat(text, 20)+`"}`)
			}
			ask(1, "Name a number. ")
			// Until all pages of the first prompt, and more, are evicted.
			for n := 2; s.engine.Stats().KV.Evictions < 8; n++ {
				ask(n, fmt.Sprintf("Count to %d. ", n))
			}
			await.True(t, "evicted pages are kept", func() bool {
				st := s.engine.Stats()
				return st.Tiers.Tiers[0].Stored >= st.KV.Evictions
			})
			ask(1000, "Name a number. ")
			root, all := s.root(t, 1000)
			want := "POST /v1/completions[queue tier.restore prefix.match prefill decode]"
			if got := spanTree(all, root); got != want {
				t.Errorf("spans %s, want %s", got, want)
			}
			restored := attributeOf(all, root, "tier.restore", "sparrow.restored_tokens").AsInt64()
			cached := attributeOf(all, root, "prefill", "sparrow.cached_tokens").AsInt64()
			match := attributeOf(all, root, "prefix.match", "sparrow.prefix.tokens").AsInt64()
			if restored < 64 || cached < restored || match+restored < cached {
				t.Errorf("%d tokens of the device's cache, %d restored, %d cached", match, restored, cached)
			}
		})
	}
}

// Two servers that handle the same request one after the other, with the same traceparent, record spans of one trace.
func TestTwoServersShareATrace(t *testing.T) {
	a, b := startTraced(t, sparrow.Config{}, server.Options{}), startTraced(t, sparrow.Config{}, server.Options{})
	for _, s := range []*traced{a, b} {
		s.whole(t, 9, "/v1/completions", `{"model": "sparrow-tiny", "prompt": "a", "max_tokens": 1}`)
	}
	first, _ := a.root(t, 9)
	second, _ := b.root(t, 9)
	if first.SpanContext.TraceID() != second.SpanContext.TraceID() || first.Parent.SpanID() != second.Parent.SpanID() ||
		first.SpanContext.SpanID() == second.SpanContext.SpanID() {
		t.Errorf("%v and %v", first.SpanContext, second.SpanContext)
	}
}
