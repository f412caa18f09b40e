package server

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"sparrow"
	"sparrow/internal/testkit/await"
)

// logText is a log that a test reads while a server writes it.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// logged returns a logger at level info and its output.
func logged() (*slog.Logger, *logText) {
	l := &logText{}
	return slog.New(slog.NewTextHandler(l, nil)), l
}

// brokenWriter is a connection on which every write fails after the first few.
type brokenWriter struct {
	httptest.ResponseRecorder
	good int
	err  error
}

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.good--; w.good < 0 {
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: w.err}
	}
	return w.ResponseRecorder.Write(p)
}

// If a write fails on a closed connection before the request's context has ended, the request counts as one whose
// client disconnected.
func TestAWriteThatFailsIsAClientThatLeft(t *testing.T) {
	chatPath, textPath := "/v1/chat/completions", "/v1/completions"
	prompt := `{"model":"sparrow-test","prompt":"a"`
	for _, c := range []struct {
		name, path, body string
		good             int
		err              error
	}{
		{"a chat in mid-stream", chatPath, hello + `,"stream":true}`, 1, syscall.EPIPE},
		{"a text in mid-stream", textPath, prompt + `,"stream":true}`, 1, syscall.ECONNRESET},
		{"a stream's first write", chatPath, hello + `,"stream":true}`, 0, syscall.ECONNRESET},
		{"a client that does not read", chatPath, hello + `,"stream":true}`, 1, os.ErrDeadlineExceeded},
		{"an answer in one piece", chatPath, hello + `}`, 0, syscall.EPIPE},
		{"an echo", textPath, prompt + `,"max_tokens":0,"echo":true,"stream":true}`, 0, syscall.EPIPE},
	} {
		t.Run(c.name, func(t *testing.T) {
			log, text := logged()
			s, err := New(newFake(saying("Hel", "lo")), Options{Log: log})
			if err != nil {
				t.Fatal(err)
			}
			s.Handler().ServeHTTP(&brokenWriter{*httptest.NewRecorder(), c.good, c.err},
				newPost(t, context.Background(), c.path, c.body))
			if got := text.String(); !strings.Contains(got, "level=INFO msg=request") ||
				!strings.Contains(got, "code=client_gone") || strings.Contains(got, "level=ERROR") {
				t.Error(got)
			}
		})
	}
}

// The log line of a request contains the time to its first token, unless no token was generated.
func TestTheLogTellsTheFirstTokenThatWas(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []sparrow.Event
		first  bool
	}{
		{"an answer", say("Hel", "lo"), true},
		{"ended before its first token", []sparrow.Event{{Finish: sparrow.FinishCancelled, Usage: usage(0)}}, false},
	} {
		log, text := logged()
		s, err := New(newFake(playing(c.events...)), Options{Log: log})
		if err != nil {
			t.Fatal(err)
		}
		s.Handler().ServeHTTP(httptest.NewRecorder(),
			newPost(t, context.Background(), "/v1/chat/completions", hello+`}`))
		if got := text.String(); !strings.Contains(got, "prompt_tokens=7") ||
			strings.Contains(got, "first_token=") != c.first {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

// A write that net/http refuses is reported as an error of the server, not of the client.
func TestAWriteThatIsRefusedIsOurs(t *testing.T) {
	if err := gone(http.ErrContentLength); clientGone(err) {
		t.Error(err)
	}
}

func TestClientsThatResetAreNoErrors(t *testing.T) {
	events := slices.Repeat(say("Hel")[:1], 100_000)
	for range 5 {
		e := newFake(playing(events...))
		log, text := logged()
		_, url, _ := listen(t, e, Options{Log: log})
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		body := hello + `,"stream":true}`
		if _, err := io.WriteString(c,
			"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "+
				itoa(len(body))+"\r\n\r\n"+body); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
		if err := c.(*net.TCPConn).SetLinger(0); err != nil {
			t.Fatal(err)
		}
		c.Close()
		await.True(t, "the line in the log", func() bool { return strings.Contains(text.String(), "msg=request") })
		if got := text.String(); !strings.Contains(got, "code=client_gone") || strings.Contains(got, "level=ERROR") {
			t.Error(got)
		}
	}
}
