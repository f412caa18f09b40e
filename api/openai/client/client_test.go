package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// serve starts a server that answers every request with one status and one body. It returns a client of the server, and
// the request that the server received last.
func serve(t *testing.T, status int, body string) (*Client, *http.Request) {
	t.Helper()
	got := new(http.Request)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*got = *r.Clone(r.Context())
		if r.Method == http.MethodPost {
			var sent map[string]int
			if err := json.NewDecoder(r.Body).Decode(&sent); err != nil || sent["a"] != 1 {
				t.Errorf("sent %v, %v", sent, err)
			}
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(h.Close)
	c, err := New(h.URL+"/v1/", "secret", http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	if c.Base() != h.URL {
		t.Errorf("base %s, want %s", c.Base(), h.URL)
	}
	return c, got
}

func TestCall(t *testing.T) {
	c, got := serve(t, http.StatusOK, `{"b": 2}`)
	var out struct{ B int }
	if err := c.Call(t.Context(), http.MethodPost, "/x", map[string]int{"a": 1}, &out); err != nil || out.B != 2 {
		t.Errorf("%+v, %v", out, err)
	}
	if got.URL.Path != "/x" || got.Header.Get("Authorization") != "Bearer secret" ||
		got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s with %v", got.URL, got.Header)
	}
}

// closing is a transport that counts the bodies that are not closed yet.
type closing struct {
	http.RoundTripper
	open   int
	closed bool // whether idle connections were closed
}

func (c *closing) CloseIdleConnections() { c.closed = true }

func (c *closing) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		c.open++
		answer.Body = closer{answer.Body, c}
	}
	return answer, err
}

type closer struct {
	io.ReadCloser
	count *closing
}

func (c closer) Close() error {
	c.count.open--
	return c.ReadCloser.Close()
}

// The body of each response is closed, so that its connection is used again: of one that is read, of one that is not
// JSON and of a refusal.
func TestBodiesAreClosed(t *testing.T) {
	for _, answer := range []struct {
		status int
		body   string
	}{{http.StatusOK, `{"b": 2}`}, {http.StatusOK, "<html>"}, {http.StatusServiceUnavailable, "busy"}} {
		served, _ := serve(t, answer.status, answer.body)
		through := &closing{RoundTripper: http.DefaultTransport}
		c, err := New(served.Base(), "", through)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Call(t.Context(), http.MethodGet, "/x", nil, new(any))
		if through.open != 0 {
			t.Errorf("status %d with %s: %d bodies are open", answer.status, answer.body, through.open)
		}
	}
}

func TestErrors(t *testing.T) {
	c, _ := serve(t, http.StatusTooManyRequests, " busy\n")
	var status *StatusError
	err := c.Call(t.Context(), http.MethodGet, "/x", nil, new(any))
	if !errors.As(err, &status) || status.Code != 429 || status.Text != "busy" ||
		!strings.Contains(err.Error(), "GET "+c.Base()+"/x") {
		t.Errorf("a refusal: %v", err)
	}
	c, _ = serve(t, http.StatusOK, "<html>")
	if err := c.Call(t.Context(), http.MethodGet, "/x", nil, new(any)); err == nil || errors.As(err, &status) ||
		!strings.Contains(err.Error(), "not that of OpenAI's API") {
		t.Errorf("no JSON: %v", err)
	}
	c, _ = serve(t, http.StatusOK, `{"data": []}`)
	if _, err := c.FirstModel(t.Context()); !errors.Is(err, ErrNoModel) {
		t.Errorf("no model: %v", err)
	}
	for _, address := range []string{"", "localhost:80", "ftp://x", "http://", "http://%"} {
		if _, err := New(address, "", nil); !errors.Is(err, ErrAddress) {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// Whole messages of errors, and which transport closes its idle connections.
func TestMessages(t *testing.T) {
	c, _ := serve(t, http.StatusOK, `{"data": [{"id": "first"}, {"id": "second"}]}`)
	if name, err := c.FirstModel(t.Context()); name != "first" || err != nil {
		t.Errorf("first model %q, %v", name, err)
	}
	base := c.Base()
	say := func(want string, err error) {
		t.Helper()
		if got := strings.ReplaceAll(fmt.Sprint(err), base, "BASE"); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	c, _ = serve(t, http.StatusNotFound, "no such page")
	base = c.Base()
	say("GET BASE/x: status 404: no such page", c.Call(t.Context(), http.MethodGet, "/x", nil, new(any)))
	_, err := c.FirstModel(t.Context())
	say("GET BASE/v1/models: status 404: no such page", err)
	c, _ = serve(t, http.StatusOK, "<html>")
	base = c.Base()
	say("POST BASE/x: the response is not that of OpenAI's API: invalid character '<' looking for beginning of value",
		c.Call(t.Context(), http.MethodPost, "/x", map[string]int{"a": 1}, new(any)))
	c, _ = serve(t, http.StatusOK, `{}`)
	base = c.Base()
	_, err = c.FirstModel(t.Context())
	say("BASE/v1/models: the server's /v1/models lists no model; give the name of one", err)
	_, err = New("ftp://host", "", nil)
	say(`the URL is not an http or https address: "ftp://host", want one such as http://localhost:8080`, err)
	say("json: unsupported type: chan int", c.Call(t.Context(), http.MethodPost, "/x", make(chan int), nil))

	long, _ := serve(t, http.StatusInternalServerError, strings.Repeat("x", maxMessageBytes+1))
	var status *StatusError
	if _, err := long.Send(t.Context(), http.MethodGet, "/x", nil); !errors.As(err, &status) || len(
		status.Text) != maxMessageBytes {
		t.Errorf("a long body: %v", err)
	}
	closed := httptest.NewServer(nil)
	closed.Close()
	idle := &closing{RoundTripper: http.DefaultTransport}
	if c, err = New(closed.URL, "", idle); err != nil {
		t.Fatal(err)
	}
	base = c.Base()
	if _, err := c.Send(t.Context(), http.MethodGet, "/x", nil); err == nil || !strings.HasPrefix(err.Error(),
		"no server is listening at "+base+"; start one there, or use another address: ") {
		t.Errorf("a closed server: %v", err)
	}
	if c.Close(); !idle.closed {
		t.Error("idle connections were not closed")
	}
}
