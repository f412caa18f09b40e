package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// sender is one client.
type sender struct {
	*trial
	draw   *rand.Rand
	ending bool // whether the server is being stopped, so that requests may be refused and streams may end
}

// one sends a random request. It returns an error if the server violates a rule.
func (a *sender) one(ctx context.Context) error {
	switch a.draw.IntN(12) {
	case 0:
		return a.raw(ctx)
	case 1:
		answer, err := a.ask(ctx)
		switch {
		case a.ending:
			return err // stops this client
		case ctx.Err() != nil:
			return nil
		case err == nil && answer != a.answer:
			return fmt.Errorf("the answer during bad requests is %s, want %s", answer, a.answer)
		}
		return err
	case 2:
		return a.send(ctx, pick(a.draw, []string{"GET", "PUT", "DELETE", "POST", "OPTIONS", "HEAD", "BREW"}),
			pick(a.draw, otherPaths), "")
	case 3:
		return a.send(ctx, "POST", pick(a.draw, paths), broken(a.draw))
	case 4:
		return a.send(ctx, "POST", pick(a.draw, paths), schemaBody(a.draw))
	case 5:
		m := pick(a.draw, mixes)
		body := named + m.body(a.draw, 0)
		if m.replays {
			body += recording
		}
		return a.send(ctx, "POST", m.path, body+"}")
	case 6, 7:
		path, body := seed(a.draw)
		return a.send(ctx, "POST", path, body)
	}
	path, body := seed(a.draw)
	return a.send(ctx, "POST", path, mutate(a.draw, body))
}

// send sends a request and reads the response. At random it reads slowly, or only a part.
func (a *sender) send(ctx context.Context, method, path, body string) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	leaves := a.draw.IntN(4) == 0
	if leaves {
		time.AfterFunc(time.Duration(a.draw.IntN(30000))*time.Microsecond, leave)
	}
	r, err := http.NewRequestWithContext(ctx, method, a.server.URL+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if a.draw.IntN(20) == 0 {
		r.Header.Set("Content-Type", pick(a.draw, []string{"text/plain", "multipart/form-data", ""}))
	}
	if a.draw.IntN(10) == 0 {
		r.Header.Set(pick(a.draw, []string{"Authorization", "X-Request-Id", "Accept-Encoding", "Host", "Origin"}),
			strings.Repeat("x", 1<<a.draw.IntN(14)))
	}
	resp, err := a.client.Do(r)
	if err != nil {
		return a.excuse(ctx, method, path, body, err)
	}
	defer resp.Body.Close()
	a.tally.add(resp.StatusCode, leaves)
	data, err := a.read(resp)
	switch s := resp.StatusCode; {
	case s >= 500 && s != http.StatusServiceUnavailable && s != http.StatusGatewayTimeout && !a.ending,
		strings.Contains(data, "the model failed"): // engine.ErrStep
		return fmt.Errorf("%s %s got status %d: %.500s; the body was %.2000s", method, path, s, data, body)
	case err != nil:
		return a.excuse(ctx, method, path, body, err)
	case s >= 400 && method != http.MethodHead && !json.Valid([]byte(data)):
		return fmt.Errorf("%s %s got status %d without JSON: %.500s; the body was %.2000s", method, path, s, data, body)
	}
	return nil
}

// excuse returns nil for errors that the client or the end of the server has caused.
func (a *sender) excuse(ctx context.Context, method, path, body string, err error) error {
	a.tally.add(0, ctx.Err() != nil)
	switch {
	case a.ending:
		return err // stops this client
	case ctx.Err() != nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil
	case len(body) > 1<<20: // the server may close the connection while the rest of a refused body is sent
		return nil
	}
	if gone := a.server.Running(); gone != nil {
		return gone
	}
	return fmt.Errorf("%s %s: %w; the body was %.2000s", method, path, err, body)
}

// most is the maximum bytes of a response that are kept for checks.
const most = 1 << 20

// read reads a response at once, byte by byte, or only its beginning.
func (a *sender) read(resp *http.Response) (string, error) {
	body := io.LimitReader(resp.Body, most)
	switch a.draw.IntN(10) {
	case 0: // read slowly, then stop
		var b [1]byte
		var out strings.Builder
		for range 20 {
			if _, err := body.Read(b[:]); err != nil {
				break
			}
			out.Write(b[:])
			time.Sleep(5 * time.Millisecond)
		}
		if resp.StatusCode >= 400 {
			rest, err := io.ReadAll(body)
			return out.String() + string(rest), err
		}
		return out.String(), nil
	case 1: // read only the beginning
		if resp.StatusCode < 400 {
			_, err := io.CopyN(io.Discard, body, 10)
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return "", err
		}
	}
	data, err := io.ReadAll(body)
	return string(data), err
}

// raw sends bytes that are not HTTP, or incomplete HTTP.
func (a *sender) raw(ctx context.Context) error {
	conn, err := a.dial()
	if err != nil {
		return a.excuse(ctx, "a", "connection", "", err)
	}
	defer conn.Close()
	_, body := seed(a.draw)
	whole := fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(body)+a.draw.IntN(3)*a.draw.IntN(1000), body)
	switch a.draw.IntN(5) {
	case 0:
		whole = whole[:a.draw.IntN(len(whole))]
	case 1:
		whole = strings.Replace(whole, "Content-Length", "Transfer-Encoding: chunked\r\nX", 1)
	case 2:
		bytes := make([]byte, a.draw.IntN(2000))
		for i := range bytes {
			bytes[i] = byte(a.draw.Uint32())
		}
		whole = string(bytes)
	case 3:
		whole = "GET / HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("X-A: b\r\n", a.draw.IntN(100000))
	}
	a.tally.add(0, true)
	for len(whole) > 0 { // send in pieces
		n := min(1+a.draw.IntN(len(whole)), len(whole))
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := io.WriteString(conn, whole[:n]); err != nil {
			return nil // the server may close the connection because of invalid data
		}
		whole = whole[n:]
		time.Sleep(time.Duration(a.draw.IntN(3000)) * time.Microsecond)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Duration(a.draw.IntN(50)) * time.Millisecond))
	_, _ = io.CopyN(io.Discard, conn, 1000) // read the response, if there is one
	return nil
}
