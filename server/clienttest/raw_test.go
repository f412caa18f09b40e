package clienttest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sparrow/api/openai"
	"sparrow/internal/testkit/await"
)

// closed is the status of a connection that the server closed without a response.
const closed = 0

// reply is the response on a raw connection.
type reply struct {
	status int // HTTP status, or closed
	fault  openai.ErrorFields
	body   string
}

// raw passes a new connection to send and reads one response. Errors of send are ignored, because the server may close
// early.
func (s *service) raw(t *testing.T, send func(w *net.TCPConn) error) reply {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(await.Hang)); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() { sent <- send(conn.(*net.TCPConn)) }()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	var late net.Error
	switch {
	case errors.As(err, &late) && late.Timeout():
		t.Fatalf("neither an answer nor an end after %v", await.Hang)
	case err != nil:
		return reply{status: closed}
	}
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	conn.Close()
	<-sent
	if err != nil {
		t.Fatalf("status %d, then %v", res.StatusCode, err)
	}
	r := reply{status: res.StatusCode, body: string(body)}
	if res.Header.Get("Content-Type") == "application/json" {
		r.fault = member[openai.ErrorBody](t, r.body, "error").Error
	}
	return r
}

// whole returns a function that sends the message in one write.
func whole(message string) func(*net.TCPConn) error {
	return func(w *net.TCPConn) error {
		_, err := io.WriteString(w, message)
		return err
	}
}

// post returns the text of an HTTP request to the chat endpoint; headers are whole lines.
func post(body string, headers ...string) string {
	var b strings.Builder
	b.WriteString("POST /v1/chat/completions HTTP/1.1\r\nHost: sparrow\r\n")
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	return b.String()
}

const jsonType = "Content-Type: application/json"

// fields returns the body of a chat request with additional fields; more begins with a comma.
func fields(more string) string {
	return `{"model":"` + model + `","messages":[{"role":"user","content":"` + nameQuestion + `"}]` + more + `}`
}

// alive checks that the server still answers.
func (s *service) alive(t *testing.T) {
	t.Helper()
	r := s.raw(t, whole(post(`{"model":"`+model+`","temperature":0,"messages":[{"role":"user","content":"Goodbye"}]}`,
		jsonType)))
	if r.status != http.StatusOK || !strings.Contains(r.body, `"content":"Goodbye!"`) ||
		!strings.Contains(r.body, `"finish_reason":"stop"`) {
		t.Errorf("the server answers %d: %s", r.status, r.body)
	}
}

// member decodes a field of a JSON object that OpenAI's own service does not have.
func member[T any](t *testing.T, raw string, what string) T {
	t.Helper()
	var v T
	if raw == "" {
		t.Fatalf("no %s", what)
	}
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		t.Fatalf("%s: %v: %s", what, err, raw)
	}
	return v
}

// normal returns a JSON text with sorted names and without spaces; text that is not JSON fails the test.
func normal(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
