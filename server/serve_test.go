package server

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sparrow"
	"sparrow/internal/testkit/await"
	"sparrow/internal/testkit/memnet"
)

// listen serves on a TCP port until stop is called or the test ends.
func listen(t *testing.T, e Engine, o Options) (s *Server, url string, stop func() error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, stop = serveOn(t, l, e, o)
	return s, "http://" + l.Addr().String(), stop
}

// site is a server whose connections are in memory, for tests under synctest.
type site struct {
	*Server
	net    *memnet.Listener
	client *http.Client
	stop   func() error
}

func newSite(t *testing.T, e Engine, o Options) *site {
	t.Helper()
	l := memnet.Listen()
	w := &site{net: l, client: l.Client()}
	w.Server, w.stop = serveOn(t, l, e, o)
	t.Cleanup(w.client.CloseIdleConnections)
	return w
}

func (w *site) post(t *testing.T, path, body string) reply {
	t.Helper()
	return sendBy(t, w.client, http.MethodPost, "http://memory"+path, body, "Content-Type", "application/json",
		requestIDHeader, "t1")
}

func (w *site) get(t *testing.T, path string) reply {
	t.Helper()
	return sendBy(t, w.client, http.MethodGet, "http://memory"+path, "")
}

// raw opens a connection, writes text to it, and returns it.
func (w *site) raw(t *testing.T, text string) net.Conn {
	t.Helper()
	c, err := w.net.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

// serveOn serves on a listener until stop is called or the test ends.
func serveOn(t *testing.T, l net.Listener, e Engine, o Options) (s *Server, stop func() error) {
	t.Helper()
	s, err := New(e, o)
	if err != nil {
		t.Fatal(err)
	}
	fixed(s)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	var once bool
	stop = func() error {
		if once {
			return nil
		}
		once = true
		cancel()
		return await.Value(t, "Serve returns", done)
	}
	t.Cleanup(func() { _ = stop() })
	return s, stop
}

// openStream sends a streaming chat and returns when its first content arrived.
func openStream(t *testing.T, ctx context.Context, by *http.Client, url string) (*http.Response, *bufio.Reader) {
	t.Helper()
	res, err := by.Do(newPost(t, ctx, url+"/v1/chat/completions", hello+`,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	lines := bufio.NewReader(res.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, `"content":"Hel"`) {
			return res, lines
		}
	}
}

// unfinished returns an engine that sends some text and then waits for the end of its context.
func unfinished() *fakeEngine { return newFake(playing(say("Hel")[0])) }

func TestLeavingClientsEndTheirRequests(t *testing.T) {
	for _, c := range []struct{ name, path, body string }{
		{"chat", "/v1/chat/completions", hello + `}`},
		{"several prompts", "/v1/completions", `{"model":"sparrow-test","prompt":["a","b","c"]}`},
		{"response", responsesPath, asked + `}`},
		{"message", messagesPath, askedMessage + `}`},
		{"Ollama's chat", "/api/chat", askedOllama + `,"stream":false}`},
		{"Ollama's prompt", "/api/generate", `{"model":"sparrow-test","prompt":"p","stream":false}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := unfinished()
			_, url, _ := listen(t, e, Options{})
			ctx, leave := context.WithCancel(context.Background())
			r := newPost(t, ctx, url+c.path, c.body)
			go func() {
				if res, err := http.DefaultClient.Do(r); err == nil {
					res.Body.Close()
				}
			}()
			await.True(t, "the request", func() bool { return e.opened() > 0 })
			leave()
			await.Value(t, "the engine to see the end of the context", e.ended)
			await.True(t, "every stream to be closed", func() bool { return e.opened() == 0 })
			await.True(t, "the count", func() bool {
				return strings.Contains(get(t, url+"/metrics").body,
					`sparrow_http_requests_total{route="`+c.path+`",status="499"} 1`)
			})
		})
	}
}

func TestLeavingInMidStreamEndsTheRequest(t *testing.T) {
	for _, c := range []struct{ path, body string }{
		{"/v1/chat/completions", hello + `,"stream":true}`},
		{responsesPath, asked + `,"stream":true}`},
		{messagesPath, askedMessage + `,"stream":true}`},
		{"/api/chat", askedOllama + `}`},
		{"/api/generate", `{"model":"sparrow-test","prompt":"p","raw":true}`},
	} {
		t.Run(c.path, func(t *testing.T) {
			e := unfinished()
			_, url, _ := listen(t, e, Options{})
			ctx, leave := context.WithCancel(context.Background())
			res, err := http.DefaultClient.Do(newPost(t, ctx, url+c.path, c.body))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if n, err := res.Body.Read(make([]byte, 64)); n == 0 {
				t.Fatal(err)
			}
			leave()
			await.Value(t, "the engine to see the end of the context", e.ended)
			await.True(t, "the stream to be closed", func() bool { return e.opened() == 0 })
		})
	}
}

// Choices that end because their client disconnected are counted like all others, whether or not the client was reading
// them.
func TestCancelledChoicesAreCounted(t *testing.T) {
	for range 5 { // which event is read last depends on timing
		e := newFake(func(sparrow.Request) ([]sparrow.Event, error) { return slices.Repeat(say("Hel")[:1], 100), nil })
		_, url, _ := listen(t, e, Options{VLLMNames: true})
		ctx, leave := context.WithCancel(context.Background())
		openStream(t, ctx, http.DefaultClient, url)
		openStream(t, ctx, http.DefaultClient, url)
		leave()
		await.True(t, "the streams to be closed", func() bool { return e.opened() == 0 })
		page := get(t, url+"/metrics").body
		for _, want := range []string{`sparrow_choices_total{reason="cancelled"} 2`,
			`finished_reason="abort",model_name="sparrow-test"} 2`} {
			if !strings.Contains(page, want) {
				t.Errorf("no %s", want)
			}
		}
	}
}

// A refused prompt cancels the earlier prompts of the same request, and their choices are counted too.
func TestChoicesBesideABadPromptAreCounted(t *testing.T) {
	e := newFake(func(r sparrow.Request) ([]sparrow.Event, error) {
		if r.Prompt == "bad" {
			return nil, &sparrow.RequestError{Field: "prompt", Reason: "no"}
		}
		return nil, nil
	})
	_, hs := start(t, e, Options{})
	post(t, hs.URL+"/v1/completions", `{"model":"sparrow-test","prompt":["a","b","bad"]}`)
	if page := get(t, hs.URL+"/metrics").body; !strings.Contains(page, `sparrow_choices_total{reason="cancelled"} 2`) {
		t.Error("not counted")
	}
}

func TestShutdownLetsStreamsFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		e := newFake(saying("Hel", "lo"))
		e.pause = func(i int) {
			if i == 1 {
				<-release
			}
		}
		w := newSite(t, e, Options{Grace: 10 * time.Second})
		_, lines := openStream(t, t.Context(), w.client, "http://memory")
		ended := make(chan error, 1)
		go func() { ended <- w.stop() }()
		await.True(t, "draining", w.draining)
		if err := w.admit(nil); err != ErrDraining {
			t.Errorf("a new request while draining: %v", err)
		}
		close(release)
		rest, err := io.ReadAll(lines)
		if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
			t.Errorf("%v\n%s", err, rest)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, err := w.net.Dial(t.Context(), "", ""); err == nil {
			t.Error("the listener still accepts")
		}
	})
}

func TestShutdownFailsStreamsThatTakeTooLong(t *testing.T) {
	for _, option := range []time.Duration{50 * time.Millisecond, NoGrace} {
		grace := max(option, 0)
		t.Run(grace.String(), func(t *testing.T) { failsAfter(t, option, grace) })
	}
}

// failsAfter checks, in virtual time, that an endless stream fails when the grace period of a shutdown is over.
func failsAfter(t *testing.T, option, grace time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		e := unfinished()
		w := newSite(t, e, Options{Grace: option})
		_, lines := openStream(t, t.Context(), w.client, "http://memory")
		ended, begun := make(chan error, 1), time.Now()
		go func() { ended <- w.stop() }()
		rest, err := io.ReadAll(lines)
		if err != nil || !strings.Contains(string(rest), `"code":"service_unavailable"`) ||
			strings.Contains(string(rest), "[DONE]") {
			t.Errorf("%v\n%s", err, rest)
		}
		if waited := time.Since(begun); waited < grace || waited > grace+time.Second {
			t.Errorf("the stream failed after %v", waited)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if e.opened() != 0 {
			t.Errorf("%d streams are still open", e.opened())
		}
	})
}

func TestReadinessEndsBeforeAccepting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSite(t, newFake(saying("x")), Options{DrainDelay: 300 * time.Millisecond})
		ended := make(chan error, 1)
		go func() { ended <- w.stop() }()
		await.True(t, "leaving", func() bool { return w.state.Load() == stateLeaving })
		if got := w.get(t, "/ready"); got.status != 503 ||
			got.body != `{"status":"not ready","reason":"shutting down"}` {
			t.Errorf("status %d: %s", got.status, got.body)
		}
		if got := w.get(t, "/health"); got.status != 200 {
			t.Errorf("health: status %d", got.status)
		}
		if got := w.post(t, "/v1/chat/completions", hello+`}`); got.status != 200 {
			t.Errorf("a request during the delay: status %d: %s", got.status, got.body)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestDrainingRefusesWork(t *testing.T) {
	s, hs := start(t, newFake(saying("x")), Options{RetryAfter: 1500 * time.Millisecond})
	s.state.Store(stateDraining)
	got := post(t, hs.URL+"/v1/chat/completions", hello+`}`)
	if e := errorOf(t, got); got.status != 503 || *e.Code != "service_unavailable" ||
		got.header.Get("Retry-After") != "2" {
		t.Errorf("status %d, %v: %s", got.status, got.header, got.body)
	}
	if got := post(t, hs.URL+"/tokenize", `{"prompt":"x"}`); got.status != 200 {
		t.Errorf("tokenize: status %d", got.status)
	}
}

func TestServeTellsABrokenListener(t *testing.T) {
	s, err := New(newFake(saying("x")), Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := s.Serve(context.Background(), l); err == nil {
		t.Error("no error")
	}
}

func TestRequestsHaveADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSite(t, newFake(playing()), Options{RequestTimeout: 30 * time.Millisecond})
		got := w.post(t, "/v1/chat/completions", hello+`}`)
		if e := errorOf(t, got); got.status != 504 || *e.Code != "deadline_exceeded" ||
			!strings.Contains(e.Message, "than the 30ms that") || !strings.Contains(e.Message, "for 25ms of that") ||
			!strings.Contains(e.Message, "when fewer requests wait") {
			t.Errorf("status %d: %s", got.status, got.body)
		}
		w = newSite(t, unfinished(), Options{RequestTimeout: 30 * time.Millisecond})
		if got := w.post(t, "/v1/chat/completions", hello+`,"stream":true}`); !strings.Contains(got.body,
			`"code":"deadline_exceeded"`) {
			t.Errorf("status %d: %s", got.status, got.body)
		}
	})
}

func TestSilentStreamsAreKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFake(saying("Hel"))
		e.pause = func(i int) {
			if i == 0 {
				time.Sleep(100 * time.Millisecond)
			}
		}
		w := newSite(t, e, Options{KeepAlive: 20 * time.Millisecond})
		got := w.post(t, "/v1/chat/completions", hello+`,"stream":true}`)
		if !strings.HasPrefix(got.body, ": waiting\n\n") || !strings.HasSuffix(got.body, "data: [DONE]\n\n") {
			t.Error(got.body)
		}
		if got := w.post(t, "/v1/chat/completions", hello+`}`); got.status != 200 || !strings.HasPrefix(got.body, "{") {
			t.Errorf("status %d: %s", got.status, got.body)
		}
		ping := "event: ping\ndata: {\"type\":\"ping\"}\n\n"
		got = w.post(t, messagesPath, askedMessage+`,"stream":true}`)
		if !strings.HasPrefix(got.body, ping+ping) || !strings.Contains(got.body, "event: message_stop\n") {
			t.Error(got.body)
		}
		// A stream of JSON lines cannot contain comments, so the server sends an empty piece of text.
		lines := strings.Split(w.post(t, "/api/chat", askedOllama+`}`).body, "\n")
		if n := len(lines); n < 4 || !strings.Contains(lines[0], `"content":""},"done":false}`) ||
			!strings.Contains(lines[n-3], `"content":"Hel"`) || !strings.Contains(lines[n-2], `"done":true`) {
			t.Errorf("%q", lines)
		}
	})
}

// Tokens without text do not delay the keep-alive comment, which is sent after the headers.
func TestTokensWithoutTextAreSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := sparrow.Event{Tokens: []sparrow.Token{{ID: 5}}}
		for _, c := range []struct{ path, body, begin string }{
			{"/v1/completions", `{"model":"sparrow-test","prompt":"a","stream":true}`, ": waiting\n\n"},
			{"/v1/chat/completions", hello + `,"stream":true}`, "data: "}, // the first chunk has the role
		} {
			e := newFake(playing(slices.Repeat([]sparrow.Event{silent}, 10_000)...))
			e.pause = func(int) { time.Sleep(2 * time.Millisecond) }
			w := newSite(t, e, Options{KeepAlive: 30 * time.Millisecond})
			ctx, leave := context.WithTimeout(context.Background(), 10*time.Second)
			defer leave()
			res, err := w.client.Do(newPost(t, ctx, "http://memory"+c.path, c.body))
			if err != nil {
				t.Fatalf("%s: no headers: %v", c.path, err)
			}
			defer res.Body.Close()
			var got strings.Builder
			for lines := bufio.NewReader(res.Body); strings.Count(got.String(), ": waiting\n\n") < 3; {
				line, err := lines.ReadString('\n')
				if err != nil {
					t.Fatalf("%s: %v after %q", c.path, err, got.String())
				}
				got.WriteString(line)
			}
			if !strings.HasPrefix(got.String(), c.begin) {
				t.Errorf("%s: %q", c.path, got.String())
			}
		}
	})
}

// A stream with frequent text contains no keep-alive comments.
func TestSpokenStreamsHaveNoComments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFake(playing(append(slices.Repeat(say("Hel")[:1], 40), say()...)...))
		e.pause = func(int) { time.Sleep(20 * time.Millisecond) }
		w := newSite(t, e, Options{KeepAlive: 400 * time.Millisecond})
		if got := w.post(t, "/v1/chat/completions", hello+`,"stream":true}`); strings.Contains(got.body, ": waiting") ||
			!strings.HasSuffix(got.body, "data: [DONE]\n\n") {
			t.Error(got.body)
		}
	})
}

// A model may take longer than the timeouts of a connection, because they apply only to reading from and writing to the
// client.
func TestTimeoutsOfConnectionsDoNotEndRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFake(saying("Hel", "lo"))
		e.pause = func(int) { time.Sleep(60 * time.Millisecond) }
		w := newSite(t, e, Options{HeaderTimeout: 40 * time.Millisecond, BodyTimeout: 40 * time.Millisecond,
			WriteTimeout: 40 * time.Millisecond})
		for _, fields := range []string{`}`, `,"stream":true}`} {
			got := w.post(t, "/v1/chat/completions", hello+fields)
			if got.status != 200 || !strings.Contains(got.body, "lo") {
				t.Errorf("%s: status %d: %s", fields, got.status, got.body)
			}
		}
	})
}

func TestSlowHeadersAreCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSite(t, newFake(saying("x")), Options{HeaderTimeout: 50 * time.Millisecond})
		for _, sent := range []string{"", "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Slow: "} {
			c := w.raw(t, sent)
			if _, err := io.ReadAll(c); err != nil {
				t.Errorf("after %q: %v", sent, err)
			}
		}
	})
}

func TestSlowBodiesAreCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSite(t, newFake(saying("x")), Options{BodyTimeout: 50 * time.Millisecond})
		c := w.raw(t, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
			"Content-Length: 100\r\n\r\n{")
		answer, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") {
			t.Errorf("%v: %s", err, answer)
		}
	})
}

func TestLargeHeadersAreRefused(t *testing.T) {
	_, url, _ := listen(t, newFake(saying("x")), Options{MaxHeaderBytes: 1 << 10})
	if got := get(t, url+"/health", "X-Large",
		strings.Repeat("x", 16<<10)); got.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", got.status)
	}
}

// A client that stops reading is disconnected after the write timeout, and its request is cancelled.
func TestClientsThatStopReadingAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big := strings.Repeat("x", 1<<20)
		e := newFake(func(sparrow.Request) ([]sparrow.Event, error) {
			return say(big, big, big, big, big, big, big, big, big, big, big, big)[:12], nil
		})
		w := newSite(t, e, Options{WriteTimeout: 100 * time.Millisecond})
		body := hello + `,"stream":true}`
		w.raw(t, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "+
			itoa(len(body))+"\r\n\r\n"+body)
		await.True(t, "the request", func() bool { e.mu.Lock(); defer e.mu.Unlock(); return len(e.requests) == 1 })
		await.True(t, "the stream to be closed", func() bool { return e.opened() == 0 })
	})
}
