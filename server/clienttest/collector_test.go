package clienttest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sparrow/internal/pinned"
	"sparrow/internal/process"
	"sparrow/internal/testkit/await"
)

var withCollector = flag.Bool("collector", false, "build OpenTelemetry's collector and send it spans of a server")

// collected is a span as a collector exports it in JSON.
type collected struct {
	TraceID  string `json:"traceId"`
	SpanID   string `json:"spanId"`
	Parent   string `json:"parentSpanId"`
	Name     string `json:"name"`
	Start    string `json:"startTimeUnixNano"` // all times have the same number of digits
	KeyValue []struct {
		Key   string                     `json:"key"`
		Value map[string]json.RawMessage `json:"value"`
	} `json:"attributes"`
}

// attribute returns the value of a span's attribute as JSON text without quotes.
func (c *collected) attribute(name string) string {
	for _, kv := range c.KeyValue {
		for _, v := range kv.Value {
			if kv.Key == name {
				return strings.Trim(string(v), `"`)
			}
		}
	}
	return ""
}

// sink stores the spans that a collector exports.
type sink struct {
	mu       sync.Mutex
	spans    []collected
	services []string // service.name of each request
	faults   []error
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ResourceSpans []struct {
			Resource   collected
			ScopeSpans []struct{ Spans []collected }
		}
	}
	err := json.NewDecoder(r.Body).Decode(&body)
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, "{}")
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.faults = append(s.faults, err)
	}
	for _, resource := range body.ResourceSpans {
		s.services = append(s.services, resource.Resource.attribute("service.name"))
		for _, scope := range resource.ScopeSpans {
			s.spans = append(s.spans, scope.Spans...)
		}
	}
}

// find returns the span with the given name in a trace.
func (s *sink) find(trace int, name string) *collected {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.spans {
		if s.spans[i].TraceID == fmt.Sprintf("%032x", trace) && s.spans[i].Name == name {
			return &s.spans[i]
		}
	}
	return &collected{}
}

// tree returns the spanTree of the span with the given parent.
func (s *sink) tree(trace int, parent string) string {
	var below []collected
	for _, c := range s.spans {
		if c.TraceID == fmt.Sprintf("%032x", trace) && c.Parent == parent {
			below = append(below, c)
		}
	}
	slices.SortStableFunc(below, func(a, b collected) int { return strings.Compare(a.Start, b.Start) })
	var names []string
	for _, c := range below {
		if inside := s.tree(trace, c.SpanID); inside != "" {
			c.Name += "[" + inside + "]"
		}
		names = append(names, c.Name)
	}
	return strings.Join(names, " ")
}

// buildCollector builds the collector of _collector into the folder of clients, once.
func buildCollector(t *testing.T) string {
	t.Helper()
	home, err := pinned.Cache()
	if err != nil {
		t.Skip("no collector: ", err)
	}
	var contents [][]byte
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		text, err := os.ReadFile(filepath.Join("_collector", name))
		if err != nil {
			t.Fatal(err)
		}
		contents = append(contents, text)
	}
	dir := pinned.Folder(home, "collector", contents...)
	path := filepath.Join(dir, "collector.exe")
	err = pinned.Once(dir, func() error {
		_, err := pinned.Output(t.Context(), "_collector", "go", "build", "-trimpath",
			"-ldflags=-s -w", "-o", path, ".")
		return err
	})
	if err != nil {
		t.Skip("no collector: its modules cannot be had or built: ", err)
	}
	return path
}

// startCollector runs a collector that receives spans at one address and sends them to another.
func startCollector(t *testing.T, to string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close() // closed so that the collector can listen on the port
	config := fmt.Sprintf(`yaml:{receivers: {otlp: {protocols: {http: {endpoint: %q}}}}, exporters: {otlp_http: {`+
		`endpoint: %q, encoding: json, compression: none}}, service: {telemetry: {metrics: {level: none}}, pipelines: `+
		`{traces: {receivers: [otlp], exporters: [otlp_http]}}}}`, at, to)
	p, err := process.Program{Path: buildCollector(t), Logs: t.TempDir()}.Start("collector", "--config", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.End(os.Interrupt); err != nil {
			t.Error(err)
		}
	})
	await.True(t, "the collector takes spans", func() bool {
		if err := p.Running(); err != nil {
			t.Fatal(err)
		}
		r, err := http.Post("http://"+at+"/v1/traces", "application/json", strings.NewReader("{}"))
		return err == nil && r.Body.Close() == nil && r.StatusCode == http.StatusOK
	})
	return "http://" + at
}

// OpenTelemetry's collector accepts the spans that a server sends and exports them unchanged: spans of a request whose
// prefix comes from disk, of a cancelled request, and of a suspended request.
func TestACollectorReceivesSpans(t *testing.T) {
	if !*withCollector {
		t.Skip("make collector runs it")
	}
	got := &sink{}
	to := httptest.NewServer(got)
	defer to.Close()
	endpoint := startCollector(t, to.URL)
	program, err := process.Sparrow(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	disk := t.TempDir()
	serve := func(name string) *process.Server {
		s, err := program.Serve(t.Context(), name, "--trace-endpoint", endpoint, "--trace-sample", "0",
			"--trace-service", "spans", "--max-running", "1", "--cache-tokens", "8192", "--disk-cache", disk,
			"--tier-wait", "1h")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Kill)
		return s
	}
	send := func(ctx context.Context, s *process.Server, n int, body string) io.ReadCloser {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/completions",
			strings.NewReader(`{"model": "sparrow-tiny", "temperature": 0, "ignore_eos": true, `+body+`}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("traceparent", fmt.Sprintf("00-%032x-%016x-01", n, n))
		got, err := http.DefaultClient.Do(r)
		if err != nil || got.StatusCode != http.StatusOK {
			t.Fatal(got, err)
		}
		return got.Body
	}
	whole := func(s *process.Server, n int, body string) {
		r := send(t.Context(), s, n, body)
		defer r.Close()
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Fatal(err)
		}
	}
	long := `"max_tokens": 3, "prompt": "` + strings.Repeat("Name a number. ", 40) + `"`

	s := serve("first")
	whole(s, 1, long)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	r := send(ctx, s, 2, `"prompt": "a", "max_tokens": 8000, "stream": true`)
	if _, err := r.Read(make([]byte, 1)); err != nil { // the request has begun to decode
		t.Fatal(err)
	}
	leave()
	r.Close()
	r = send(t.Context(), s, 3, `"prompt": "a", "max_tokens": 2000, "stream": true, "priority": 5`)
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	whole(s, 4, `"prompt": "b", "max_tokens": 3, "priority": 1`)
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if err := s.End(os.Interrupt); err != nil { // when the server ends, it writes pages to the disk
		t.Fatal(err)
	}
	s = serve("second")
	whole(s, 5, long)
	if err := s.End(os.Interrupt); err != nil {
		t.Fatal(err)
	}

	const name = "POST /v1/completions"
	for n := 1; n <= 5; n++ {
		await.True(t, "the span of a request arrives", func() bool { return got.find(n, name).Name != "" })
	}
	got.mu.Lock()
	for n, want := range map[int]string{1: "queue prefix.match prefill decode", 2: "queue prefix.match prefill decode",
		3: "queue prefix.match prefill decode[suspended]", 4: "queue prefix.match prefill decode",
		5: "queue tier.restore prefix.match prefill decode"} {
		if tree := got.tree(n, fmt.Sprintf("%016x", n)); tree != name+"["+want+"]" {
			t.Errorf("spans of request %d: %s, want %s", n, tree, want)
		}
	}
	if slices.ContainsFunc(got.services, func(s string) bool { return s != "spans" }) || got.faults != nil {
		t.Errorf("services %q, %v", got.services, got.faults)
	}
	got.mu.Unlock()
	for _, c := range []struct {
		n                     int
		span, attribute, want string
	}{
		{1, name, "http.route", "/v1/completions"}, {1, name, "http.response.status_code", "200"},
		{1, "decode", "gen_ai.usage.output_tokens", "3"}, {2, name, "error.type", "client_gone"},
		{2, "decode", "sparrow.finish", "cancelled"}, {3, "decode", "sparrow.preempted", "1"},
		{3, "decode", "sparrow.finish", "length"}, {5, "prefill", "sparrow.cached_tokens",
			got.find(5, "tier.restore").attribute("sparrow.restored_tokens")},
	} {
		if v := got.find(c.n, c.span).attribute(c.attribute); v != c.want || v == "" || v == "0" {
			t.Errorf("request %d: %s of %s is %q, want %q", c.n, c.attribute, c.span, v, c.want)
		}
	}
	if plans := got.find(1, "decode").attribute("sparrow.plans"); !strings.Contains(plans, "stringValue") {
		t.Errorf("plans %s", plans)
	}
	t.Logf("%d spans of 5 requests arrived", len(got.spans))
}
