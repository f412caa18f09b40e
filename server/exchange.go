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

// requestIDHeader carries the id of a request, in both directions.
const requestIDHeader = "X-Request-Id"

// maxRequestID is the maximum length of an id that a client chose.
const maxRequestID = 128

// exchange is one HTTP request and its response, for the log and the metrics. It belongs to the goroutine that serves
// the request.
type exchange struct {
	id      string
	arrived time.Time
	route   string // pattern of the route that matched
	access  access // access that the route requires
	dialect *dialect
	tenant  string // tenant of the key
	source  string // network address that sent the request
	// flow is the flow of the request within the tenant. It and priority come from a gateway's headers; without a
	// header each connection is a flow.
	flow     string
	priority int
	// background means that the request is a line of a batch, which has a lower priority than all other requests.
	background bool
	ignored    []string // fields of the request that had no effect
	leftOut    []string // types of tools that were not offered to the model
	effort     effort
	memory     lease
	span       trace.Span // span of the request; nil if requests are not traced
	unread     io.Reader  // the rest of a body that was refused

	firstToken time.Duration // time from arrival to the first token; 0 if no token was generated
	usage      sparrow.Usage
	fault      error // error of the request, with details that the client does not get
}

type exchangeKey struct{}

func withExchange(r *http.Request, x *exchange) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
}

// exchangeOf returns the exchange that ServeHTTP put into every request.
func exchangeOf(r *http.Request) *exchange { return r.Context().Value(exchangeKey{}).(*exchange) }

// requestID returns the client's own id if it is safe in logs and headers, and otherwise a random id.
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

// recorder records the status and size of the response.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// WriteHeader records the final status.
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

// Unwrap lets http.ResponseController reach flushing and deadlines.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
