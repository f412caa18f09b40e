package server

import (
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"sparrow"
)

// requestIDHeader is the header with the id of a request, in requests and responses.
const requestIDHeader = "X-Request-Id"

// maxRequestID is the maximum length in bytes of an id that a client sends.
const maxRequestID = 128

// exchange is one HTTP request and its response, for the log and the metrics. Only the goroutine of the request uses
// it.
type exchange struct {
	id      string
	arrived time.Time
	route   string // pattern of the route that matched
	access  access // kind of key that the route requires
	dialect *dialect
	tenant  string // tenant of the key
	source  string // network address of the client
	// flow is the group of the request within its tenant (sparrow.Request.Flow). It and priority are from a gateway's
	// headers; without a header, each connection is a flow.
	flow     string
	priority int
	// background is true for a line of a batch, which has a lower priority than all other requests.
	background bool
	ignored    []string // request fields without effect
	leftOut    []string // types of tools that are not offered to the model
	effort     effort
	memory     lease
	span       trace.Span // span of the request; nil if requests are not traced
	unread     io.Reader  // unread part of a refused body

	firstToken time.Duration // time from arrival to the first token; 0 if there was none
	usage      sparrow.Usage
	fault      error // error of the request, with details that are not sent to the client
}

type exchangeKey struct{}

func withExchange(r *http.Request, x *exchange) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
}

// exchangeOf returns the exchange that ServeHTTP has stored in the request's context.
func exchangeOf(r *http.Request) *exchange { return r.Context().Value(exchangeKey{}).(*exchange) }

// requestID returns the id that the client sent, if it is safe in logs and headers, otherwise a random id.
func requestID(r *http.Request) string {
	if id := r.Header.Get(requestIDHeader); plainID(id) {
		return id
	}
	return "req-" + rand.Text()
}

func plainID(id string) bool {
	if id == "" || len(id) > maxRequestID {
		return false
	}
	for i := range len(id) {
		if b := id[i]; b <= ' ' || b > '~' || b == '"' || b == '\\' {
			return false
		}
	}
	return true
}

// recorder is a ResponseWriter that stores the status and size of the response.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// WriteHeader stores the final status.
func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write counts bytes.
func (w *recorder) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// Unwrap makes http.ResponseController work with the wrapped writer.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
