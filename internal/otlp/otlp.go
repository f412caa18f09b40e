// Package otlp sends spans of OpenTelemetry's SDK to a collector: OTLP over HTTP, protobuf.
//
// It replaces the SDK's exporter, which imports gRPC even for HTTP. The few protobuf messages of a request are encoded
// by hand.
package otlp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// Path is the URL path at which collectors accept spans.
const Path = "/v1/traces"

// Exporter sends spans to a collector. It is an [sdk.SpanExporter].
type Exporter struct {
	url     string
	headers map[string]string
	client  *http.Client

	mu     sync.Mutex
	closed bool
}

// exportTimeout is the maximum time of one attempt, attempts the maximum number of times that a request is sent.
const (
	exportTimeout = 10 * time.Second
	attempts      = 4
)

// New returns an exporter for a collector's address, such as http://localhost:4318. If it has no path, Path is added.
func New(endpoint string, headers map[string]string) (*Exporter, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("otlp: %q is not the address of a collector; want one such as http://localhost:4318",
			endpoint)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = Path
	}
	return &Exporter{url: u.String(), headers: headers, client: &http.Client{Timeout: exportTimeout}}, nil
}

// ExportSpans sends spans, and repeats the request if the response of the collector requests that.
func (e *Exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	if closed || len(spans) == 0 {
		return nil
	}
	body := Encode(spans)
	for n := 1; ; n++ {
		wait, err := e.send(ctx, body)
		if err == nil || wait < 0 || n == attempts {
			return err
		}
		select {
		case <-time.After(wait * time.Duration(n)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// send sends a request. If it fails, the result is the pause before the request may be repeated, or a negative value if
// it must not be.
func (e *Exporter) send(ctx context.Context, body []byte) (time.Duration, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	for name, value := range e.headers {
		r.Header.Set(name, value)
	}
	got, err := e.client.Do(r)
	if err != nil {
		return time.Second, fmt.Errorf("otlp: %w", err)
	}
	defer got.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(got.Body, 1<<10)) // used only in the error
	switch got.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return 0, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		wait := time.Second
		if n, err := strconv.Atoi(got.Header.Get("Retry-After")); err == nil && n > 0 && n < 60 {
			wait = time.Duration(n) * time.Second
		}
		return wait, fmt.Errorf("otlp: %s responded with %s", e.url, got.Status)
	}
	return -1, fmt.Errorf("otlp: %s responded with %s: %.200q", e.url, got.Status, text)
}

// Shutdown makes later calls of ExportSpans do nothing.
func (e *Exporter) Shutdown(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.client.CloseIdleConnections()
	return nil
}
