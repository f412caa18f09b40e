package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"sparrow"
	"sparrow/internal/wire"
)

// respond sends a JSON response.
func (s *service) respond(w http.ResponseWriter, status int, v any) error {
	body, err := wire.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the response: %w", err)
	}
	// The deadline includes the last flush, which follows after the handler.
	if err := writeBy(w, time.Now().Add(s.options.WriteTimeout)); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, err = w.Write(body)
	return gone(err)
}

// fail sends an error, unless the client has disconnected or the response has begun.
func (s *service) fail(w *recorder, x *exchange, err error) {
	x.fault = err
	if clientGone(err) || w.status != 0 {
		return
	}
	e := toError(err, x.id)
	switch e.Code {
	case wire.CodeQueueFull, wire.CodeUnavailable:
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(s.retryAfter(x, err).Seconds()))))
	case wire.CodeInvalidKey:
		w.Header().Set("WWW-Authenticate", `Bearer realm="sparrow"`)
	}
	if errors.Is(err, ErrDraining) {
		w.Header().Set("Connection", "close")
	}
	if x.unread != nil {
		w.Header().Set("Connection", "close")
		_ = http.NewResponseController(w).EnableFullDuplex() // the body is read after the response
	}
	if err := s.respond(w, e.Status(), x.dialect.failure(e, x.id)); err != nil {
		s.options.Log.Debug("an error could not be delivered", "id", x.id, "error", err)
	}
	x.discard(w)
}

// Maximum bytes of a refused body that are read, and maximum time. If the connection were closed while the client still
// sends the body, the client would not receive the response.
const (
	mostUnread = 256 << 20
	unreadTime = 10 * time.Second
)

// discard sends the response and then reads the rest of a refused body.
func (x *exchange) discard(w http.ResponseWriter) {
	if x.unread == nil {
		return
	}
	c := http.NewResponseController(w)
	if c.Flush() == nil && c.SetReadDeadline(time.Now().Add(unreadTime)) == nil {
		_, _ = io.CopyN(io.Discard, x.unread, mostUnread) // the connection is closed after errors too
	}
}

// retryAfter returns the pause before a refused request can be sent again: the time in the error or, if the queue is
// full, the estimated queueing time of the tenant.
func (s *service) retryAfter(x *exchange, err error) time.Duration {
	var refused *laterError
	switch {
	case errors.As(err, &refused):
		return max(refused.after, s.options.RetryAfter)
	case errors.Is(err, sparrow.ErrQueueFull):
		return max(s.engine.Wait(x.tenant, x.source), s.options.RetryAfter)
	}
	return s.options.RetryAfter
}

// clientGone reports whether the client has disconnected: the request's context ended without a cause of the server, or
// a write to the connection failed.
func clientGone(err error) bool { return errors.Is(err, context.Canceled) || errors.Is(err, errGone) }

// gone wraps errors of a connection in errGone. Errors of net/http about wrong writes are not wrapped, because they are
// bugs of the server.
func gone(err error) error {
	var broken net.Error
	if errors.As(err, &broken) {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return err
}

// readBody reads a JSON body of at most Options.MaxBodyBytes bytes.
func (s *service) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	// Without a preflight request, browsers do not send this type to other origins, so pages of other origins are
	// blocked.
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if (err != nil || kind != "application/json") && !plainTool(r) {
		return nil, wire.NewError(wire.CodeMediaType, "",
			"the content type is %q; send Content-Type: application/json", r.Header.Get("Content-Type"))
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, wire.NewError(wire.CodeMediaType, "",
			"the content encoding %q is not supported; send the body without encoding", e)
	}
	limit := s.options.MaxBodyBytes
	unread := r.Body
	if r.ContentLength > limit {
		exchangeOf(r).unread = unread
		return nil, &http.MaxBytesError{Limit: limit}
	}
	body, err := s.readAll(r, http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large), errors.As(err, new(*wire.Error)):
		exchangeOf(r).unread = unread
		return nil, err
	case err == nil:
		return body, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, wire.NewError(wire.CodeInvalidJSON, "", "the body did not arrive within %v; send it faster",
			s.options.BodyTimeout)
	case r.Context().Err() != nil:
		return nil, cause(r.Context())
	}
	return nil, wire.NewError(wire.CodeInvalidJSON, "", "reading the body failed: %v", err)
}

// firstChunk is the size in bytes for which memory is reserved first, if the size of a body is unknown; it is doubled
// as needed.
const firstChunk = 64 << 10

// readAll reads a body, after reserving memory for it.
func (s *service) readAll(r *http.Request, from io.Reader) ([]byte, error) {
	x := exchangeOf(r)
	take := func(size int64) error { return x.memory.open(r.Context(), s.memory, size, s.options.BodyTimeout) }
	if r.ContentLength >= 0 {
		if err := take(r.ContentLength); err != nil {
			return nil, err
		}
		return io.ReadAll(from)
	}
	var body []byte
	for size := int64(firstChunk); ; size = min(2*size, s.options.MaxBodyBytes+1) { // one byte too many
		if err := take(size); err != nil {
			return nil, err
		}
		piece, err := io.ReadAll(io.LimitReader(from, size-int64(len(body))))
		body = append(body, piece...)
		if err != nil || int64(len(body)) < size {
			return body, err
		}
	}
}

// plainTool reports whether a request of Ollama's API is not from a web page: browsers set Origin in every POST to
// another origin. In Ollama's examples, curl sends JSON with the content type of a form.
func plainTool(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, ollamaPrefix) && r.Header.Get("Origin") == "" &&
		r.Header.Get("Sec-Fetch-Site") == ""
}

// ignoredHeader is the response header that lists request fields without effect.
const ignoredHeader = "X-Sparrow-Ignored"

// noteIgnored lists fields without effect in the response header and in the log.
func noteIgnored(w http.ResponseWriter, x *exchange, names []string) {
	if len(names) == 0 {
		return
	}
	x.ignored = append(x.ignored, names...)
	w.Header().Set(ignoredHeader, strings.Join(x.ignored, ", "))
}

// reader decodes one kind of request.
type reader[T any] func(*wire.Decoder, []byte) (*T, *wire.Error)

// decode reads and decodes the body of a request. Fields without effect are listed in a header and in the log.
func decode[T any](s *service, w http.ResponseWriter, r *http.Request, read reader[T]) (*T, error) {
	body, err := s.readBody(w, r)
	if err != nil {
		return nil, err
	}
	d := wire.Decoder{Strict: s.options.Strict}
	req, bad := read(&d, body)
	noteIgnored(w, exchangeOf(r), d.Ignored)
	if bad != nil {
		return nil, bad
	}
	return req, nil
}
