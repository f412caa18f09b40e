package server

import (
	"errors"
	"net/http"
	"time"

	"sparrow/api/openai"
)

// sse sends server-sent events or lines of JSON. Events are appended to buf, and flush sends them. Before the first
// flush nothing is sent, so that an error before the first token can be sent with an HTTP status.
type sse struct {
	w         http.ResponseWriter
	mediaType string
	keepAlive func(dst []byte) []byte // appends the data that is sent to keep the connection open
	timeout   time.Duration
	open      bool      // whether headers were sent
	heard     time.Time // time at which data was last sent
	buf       []byte
}

// newSSE prepares a stream on w. It removes the write deadline for the whole response.
func newSSE(w http.ResponseWriter, timeout time.Duration) (*sse, error) {
	return &sse{w: w, mediaType: "text/event-stream", keepAlive: openai.AppendKeepAlive, timeout: timeout,
		heard: time.Now()}, writeBy(w, time.Time{})
}

// writeBy sets the deadline for writes; zero means none. Only writers in tests have no deadlines.
func writeBy(w http.ResponseWriter, at time.Time) error {
	if err := http.NewResponseController(w).SetWriteDeadline(at); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return gone(err)
	}
	return nil
}

// flush sends the appended data, within the timeout.
func (e *sse) flush() error {
	if len(e.buf) == 0 {
		return nil
	}
	if err := writeBy(e.w, time.Now().Add(e.timeout)); err != nil {
		return err
	}
	if !e.open {
		e.open = true
		h := e.w.Header()
		h.Set("Content-Type", e.mediaType)
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no")
		e.w.WriteHeader(http.StatusOK)
	}
	_, err := e.w.Write(e.buf)
	e.buf = e.buf[:0]
	if err != nil {
		return gone(err)
	}
	err = gone(http.NewResponseController(e.w).Flush())
	e.heard = time.Now()
	return err
}

// idle sends a comment, or its equivalent, if nothing was sent for the time limit. Headers are sent before it.
func (e *sse) idle(limit time.Duration) (time.Duration, error) {
	if left := limit - time.Since(e.heard); left > 0 {
		return left, nil
	}
	e.buf = e.keepAlive(e.buf)
	return limit, e.flush()
}
