package client

import (
	"encoding/json"
	"errors"
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
	open int
}

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
