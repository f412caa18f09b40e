package server

import (
	"bytes"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/internal/testkit/await"
	"sparrow/plan"
)

func TestUnknownPathsAndMethods(t *testing.T) {
	_, hs := start(t, newFake(saying("x")), Options{})
	for _, c := range []struct {
		method, path string
		status       int
		code, allow  string
	}{
		{"GET", "/index", 404, "unknown_url", ""},
		{"POST", "/", 405, "method_not_supported", "GET, HEAD"},
		{"POST", "/v1/embeddings", 404, "unknown_url", ""},
		{"GET", "/v1/models/", 404, "unknown_url", ""},
		{"GET", "/v1/chat/completions", 405, "method_not_supported", "POST"},
		{"DELETE", "/v1/models", 405, "method_not_supported", "GET, HEAD"},
		{"PUT", "/health", 405, "method_not_supported", "GET, HEAD"},
		{"OPTIONS", "/v1/chat/completions", 405, "method_not_supported", "POST"},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			got := send(t, c.method, hs.URL+c.path, "")
			if e := errorOf(t, got); got.status != c.status || *e.Code != c.code || got.header.Get("Allow") != c.allow {
				t.Errorf("status %d, Allow %q: %s", got.status, got.header.Get("Allow"), got.body)
			}
		})
	}
}

func TestSmallEndpoints(t *testing.T) {
	e := newFake(saying("x"))
	e.info.Name = "org/sparrow-test"
	_, hs := start(t, e, Options{Version: "1.2.3"})
	model := `{"id":"org/sparrow-test","object":"model","created":1700000000,"owned_by":"sparrow","max_model_len":4096}`
	for _, c := range []struct{ path, want string }{
		{"/v1/models", `{"object":"list","data":[` + model + `]}`},
		{"/v1/models/org/sparrow-test", model},
		{"/v1/models/org%2Fsparrow-test", model},
		{"/health", `{"status":"ok"}`},
		{"/ready", `{"status":"ready"}`},
	} {
		if got := get(t, hs.URL+c.path); got.status != 200 || got.body != c.want {
			t.Errorf("%s: status %d: %s", c.path, got.status, got.body)
		}
	}
	if got := get(t, hs.URL+"/version"); !strings.HasPrefix(got.body, `{"version":"1.2.3","go":"go`) {
		t.Error(got.body)
	}
	if got := get(t, hs.URL+"/v1/models/other"); got.status != 404 || !strings.Contains(got.body, "model_not_found") {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	if got := send(t, "HEAD", hs.URL+"/health", ""); got.status != 200 || got.body != "" {
		t.Errorf("HEAD: status %d: %q", got.status, got.body)
	}
	e.mu.Lock()
	e.stats.Waiting = e.info.MaxQueue
	e.mu.Unlock()
	if got := get(t, hs.URL+"/ready"); got.status != 503 ||
		got.body != `{"status":"not ready","reason":"the queue is full"}` {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	e.mu.Lock()
	e.stats.Device = "the device failed"
	e.mu.Unlock()
	if got := get(t, hs.URL+"/ready"); got.status != 503 ||
		got.body != `{"status":"not ready","reason":"the device failed"}` {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	if got := get(t, hs.URL+"/health"); got.status != 200 {
		t.Errorf("/health of a process whose device failed: status %d", got.status)
	}
}

func TestTokenizeAndBack(t *testing.T) {
	_, hs := start(t, newFake(saying("x")), Options{})
	for _, c := range []struct{ path, body, want string }{
		{"/tokenize", `{"prompt":"hi"}`, `{"count":3,"max_model_len":4096,"tokens":[1,104,105],"token_strs":null}`},
		{"/tokenize", `{"model":"sparrow-test","prompt":"hi","add_special_tokens":false,"return_token_strs":true}`,
			`{"count":2,"max_model_len":4096,"tokens":[104,105],"token_strs":["h","i"]}`},
		{"/tokenize", `{"prompt":"","add_special_tokens":false}`,
			`{"count":0,"max_model_len":4096,"tokens":[],"token_strs":null}`},
		{"/tokenize", `{"messages":[{"role":"user","content":"é"}]}`,
			`{"count":8,"max_model_len":4096,"tokens":[60,117,115,101,114,62,195,169],"token_strs":null}`},
		{"/tokenize", `{"messages":[{"role":"user","content":""}],"add_special_tokens":true}`,
			`{"count":7,"max_model_len":4096,"tokens":[1,60,117,115,101,114,62],"token_strs":null}`},
		{"/detokenize", `{"tokens":[104,105]}`, `{"prompt":"hi"}`},
		{"/detokenize", `{"tokens":[]}`, `{"prompt":""}`},
		{"/detokenize", `{"tokens":[195]}`, "{\"prompt\":\"\uFFFD\"}"},
	} {
		if got := post(t, hs.URL+c.path, c.body); got.status != 200 || got.body != c.want {
			t.Errorf("%s %s: status %d\n got %s\nwant %s", c.path, c.body, got.status, got.body, c.want)
		}
	}
}

func TestPlansAreListedLatestFirst(t *testing.T) {
	e := newFake(saying("x"))
	for i := range 3 {
		e.plans = append(e.plans, sparrow.PlanRecord{Step: int64(i), At: time.Unix(int64(i), 0).UTC(),
			Took: 1500 * time.Microsecond, Requests: 2, Plan: &plan.Plan{Rows: i}})
	}
	_, hs := start(t, e, Options{})
	got := get(t, hs.URL+"/debug/plans?n=2")
	two := strings.Index(got.body, `{"step":2,"at":"1970-01-01T00:00:02Z","took_ms":1.5,"requests":2,"plan":{`)
	one := strings.Index(got.body, `{"step":1,`)
	if got.status != 200 || two < 0 || one < two || strings.Contains(got.body, `{"step":0,`) {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	if all := get(t, hs.URL+"/debug/plans"); !strings.Contains(all.body, `{"step":0,`) {
		t.Error(all.body)
	}
	for _, n := range []string{"-1", "x", "9999999999999999999999"} {
		if got := get(t, hs.URL+"/debug/plans?n="+n); got.status != 400 || !strings.Contains(got.body, `"param":"n"`) {
			t.Errorf("n=%s: status %d: %s", n, got.status, got.body)
		}
	}
}

func TestKeysGuardWhatCostsAndNameTheTenant(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte("# ours\n\nk-one acme\r\n  k-two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := LoadKeys(path)
	if err != nil || len(keys.list) != 2 {
		t.Fatal(keys, err)
	}
	e := newFake(saying("x"))
	_, hs := start(t, e, Options{Keys: keys})
	for _, c := range []struct {
		name, header string
		status       int
		tenant       string
	}{
		{"no key", "", 401, ""},
		{"another scheme", "Basic k-one", 401, ""},
		{"a wrong key", "Bearer k-on", 401, ""},
		{"a longer key", "Bearer k-onee", 401, ""},
		{"an empty key", "Bearer ", 401, ""},
		{"the tenant is no key", "Bearer acme", 401, ""},
		{"a key with a tenant", "Bearer k-one", 200, "acme"},
		{"a key without one", "bearer k-two", 200, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := post(t, hs.URL+"/v1/chat/completions", hello+`}`, "Authorization", c.header)
			if got.status != c.status {
				t.Fatalf("status %d: %s", got.status, got.body)
			}
			if c.status == 200 {
				if e.last(t).Tenant != c.tenant {
					t.Errorf("tenant %q", e.last(t).Tenant)
				}
				return
			}
			if e := errorOf(t, got); *e.Code != "invalid_api_key" || e.Type != openai.TypeAuthentication ||
				got.header.Get("WWW-Authenticate") == "" {
				t.Error(got.body, got.header)
			}
			if strings.Contains(got.body, "k-on") {
				t.Errorf("the key is in the answer: %s", got.body)
			}
		})
	}
	for path, status := range map[string]int{"/health": 200, "/ready": 200, "/metrics": 200, "/version": 200,
		"/v1/models": 401, "/debug/plans": 401} {
		if got := get(t, hs.URL+path); got.status != status {
			t.Errorf("%s without a key: status %d", path, got.status)
		}
	}
}

func TestUnusableKeyFiles(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "comments only": "# a\n\n", "three words": "a b c",
		"a key twice": "a x\na y"} {
		if _, err := ReadKeys(strings.NewReader(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := LoadKeys(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file was accepted")
	}
}

func TestRequestIDsComeFromTheClientOrAreDrawn(t *testing.T) {
	_, hs := start(t, newFake(saying("x")), Options{})
	if got := get(t, hs.URL+"/health", requestIDHeader, "abc-1.2:3"); got.header.Get(requestIDHeader) != "abc-1.2:3" {
		t.Error(got.header)
	}
	seen := map[string]bool{}
	for _, given := range []string{"", "has space", "quote\"", strings.Repeat("x", 129), "\u00e9"} {
		id := get(t, hs.URL+"/health", requestIDHeader, given).header.Get(requestIDHeader)
		if !strings.HasPrefix(id, "req-") || seen[id] {
			t.Errorf("for %q: id %q", given, id)
		}
		seen[id] = true
	}
}

func TestBodiesMustBeDeclaredAsJSON(t *testing.T) {
	_, hs := start(t, newFake(saying("x")), Options{})
	for _, c := range []struct {
		kind, encoding string
		status         int
	}{
		{"application/json", "", 200}, {"application/json; charset=utf-8", "", 200},
		{"application/json", "identity", 200}, {"", "", 415}, {"text/plain", "", 415},
		{"application/x-www-form-urlencoded", "", 415}, {"application/json", "gzip", 415},
	} {
		got := send(t, "POST", hs.URL+"/v1/chat/completions", hello+`}`, "Content-Type", c.kind, "Content-Encoding",
			c.encoding)
		if got.status != c.status {
			t.Errorf("%q %q: status %d: %s", c.kind, c.encoding, got.status, got.body)
		}
	}
}

func TestOtherOrigins(t *testing.T) {
	const page = "https://app.example"
	ask := []string{"Origin", page, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers",
		"authorization,x-stainless-os"}
	_, closed := start(t, newFake(saying("x")), Options{})
	if got := send(t, "OPTIONS", closed.URL+"/v1/chat/completions", "", ask...); got.status != 405 ||
		got.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("by default: status %d, %v", got.status, got.header)
	}
	for _, c := range []struct {
		name  string
		allow []string
		want  string
	}{{"this one", []string{"http://localhost:3000", page}, page}, {"all", []string{"*"}, "*"},
		{"others", []string{"https://other.example"}, ""}} {
		t.Run(c.name, func(t *testing.T) {
			_, hs := start(t, newFake(saying("x")), Options{AllowOrigins: c.allow})
			question := send(t, "OPTIONS", hs.URL+"/v1/chat/completions", "", ask...)
			answer := post(t, hs.URL+"/v1/chat/completions", hello+`}`, "Origin", page)
			if got := question.header.Get("Access-Control-Allow-Origin"); got != c.want ||
				(question.status == 204) != (c.want != "") {
				t.Errorf("question: status %d, origin %q", question.status, got)
			}
			if c.want != "" && question.header.Get("Access-Control-Allow-Headers") != "authorization,x-stainless-os" {
				t.Errorf("question: %v", question.header)
			}
			if got := answer.header.Get("Access-Control-Allow-Origin"); answer.status != 200 || got != c.want ||
				answer.header.Get("Vary") != "Origin" {
				t.Errorf("answer: status %d, %v", answer.status, answer.header)
			}
		})
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"a negative time":      {WriteTimeout: -1},
		"a negative grace":     {Grace: -time.Second},
		"a negative body":      {MaxBodyBytes: -1},
		"negative headers":     {MaxHeaderBytes: -1},
		"no origin":            {AllowOrigins: []string{"example.org"}},
		"an origin with path":  {AllowOrigins: []string{"https://example.org/"}},
		"all and one of them":  {AllowOrigins: []string{"*", "https://example.org"}},
		"an origin by scripts": {AllowOrigins: []string{"javascript://x"}},
	} {
		if _, err := New(newFake(saying("x")), o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	e := newFake(saying("x"))
	e.info.Name = ""
	if _, err := New(e, Options{}); err == nil {
		t.Error("a model without a name was accepted")
	}
}

// lockedBuffer is written by handlers and read by tests.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestLogHasNumbersAndNoText(t *testing.T) {
	var log lockedBuffer
	keys, err := ReadKeys(strings.NewReader("verysecretkey acme"))
	if err != nil {
		t.Fatal(err)
	}
	_, hs := start(t, newFake(saying("classified", "answer")),
		Options{Keys: keys, Log: slog.New(slog.NewTextHandler(&log, nil))})
	auth := []string{"Authorization", "Bearer verysecretkey"}
	get(t, hs.URL+"/health")
	post(t, hs.URL+"/v1/chat/completions",
		`{"model":"sparrow-test","messages":[{"role":"user","content":"topsecret"}]}`, auth...)
	post(t, hs.URL+"/v1/chat/completions", `{"model":"topsecret","messages":[{"role":"user","content":"x"}]}`, auth...)
	get(t, hs.URL+"/debug/plans?n=topsecret", auth...)
	await.True(t, "three lines", func() bool { return strings.Count(log.String(), "msg=request") == 3 })
	for _, word := range []string{"topsecret", "classified", "answer", "verysecretkey", "/health"} {
		if strings.Contains(log.String(), word) {
			t.Errorf("%q is in the log:\n%s", word, log.String())
		}
	}
	for _, part := range []string{"id=t1", "route=/v1/chat/completions", "status=200", "tenant=acme", "prompt_tokens=7",
		"cached_tokens=4", "completion_tokens=2", "status=404", "code=model_not_found"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("no %q in the log:\n%s", part, log.String())
		}
	}
}

func TestPanicsAreOneFailedRequest(t *testing.T) {
	var log lockedBuffer
	calls := 0
	e := newFake(func(sparrow.Request) ([]sparrow.Event, error) {
		if calls++; calls == 1 {
			panic("broken invariant")
		}
		return say("x"), nil
	})
	_, hs := start(t, e, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	got := post(t, hs.URL+"/v1/chat/completions", hello+`}`)
	if e := errorOf(t, got); got.status != 500 || *e.Code != "internal_error" ||
		strings.Contains(got.body, "invariant") {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	if !strings.Contains(log.String(), "broken invariant") || !strings.Contains(log.String(), "fake_test.go") {
		t.Errorf("no panic with its stack in the log:\n%s", log.String())
	}
	if got := post(t, hs.URL+"/v1/chat/completions", hello+`}`); got.status != 200 {
		t.Errorf("afterwards: status %d", got.status)
	}
	if got := get(t, hs.URL+"/metrics"); !strings.Contains(got.body, "sparrow_http_panics_total 1\n") {
		t.Error("the panic was not counted")
	}
}

func TestAPanicInMidStreamCutsTheConnection(t *testing.T) {
	events := []sparrow.Event{say("x")[0], {Choice: 5, Text: "no such choice"}}
	_, hs := start(t, newFake(playing(events...)), Options{})
	res, err := http.DefaultClient.Do(newPost(t, t.Context(), hs.URL+"/v1/chat/completions", hello+`,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(res.Body); err == nil || strings.Contains(b.String(), "[DONE]") {
		t.Errorf("the stream looks whole: %v\n%s", err, b.String())
	}
}

func TestRecorderKeepsTheFirstStatus(t *testing.T) {
	var got []int
	for _, statuses := range [][]int{{200, 500}, {100, 404}, {103, 200}} {
		rec := &recorder{ResponseWriter: discard{}}
		for _, s := range statuses {
			rec.WriteHeader(s)
		}
		got = append(got, rec.status)
	}
	if diff := cmp.Diff([]int{200, 404, 200}, got); diff != "" {
		t.Error(diff)
	}
}

// discard is a response writer that discards everything.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}
