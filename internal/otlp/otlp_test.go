package otlp

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/encoding/protowire"
)

// fields returns one line for each field of a protobuf message, in order: the numbers of the enclosing fields and its
// own, then its value. messages lists the fields that are messages themselves.
func fields(t *testing.T, b []byte, at string, messages []string) (list []string) {
	t.Helper()
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			t.Fatalf("%s: %v", at, protowire.ParseError(size))
		}
		b = b[size:]
		name := strings.TrimPrefix(fmt.Sprintf("%s.%d", at, n), ".")
		switch kind {
		case protowire.BytesType:
			v, size := protowire.ConsumeBytes(b)
			b = b[size:]
			switch {
			case slices.Contains(messages, name):
				list = append(list, fields(t, v, name, messages)...)
			case len(v) == 16 || len(v) == 8 && strings.HasSuffix(name, ".2") || strings.HasSuffix(name, "2.2.4"):
				list = append(list, name+" "+hex.EncodeToString(v))
			default:
				list = append(list, name+" "+string(v))
			}
		case protowire.VarintType:
			v, size := protowire.ConsumeVarint(b)
			b = b[size:]
			list = append(list, fmt.Sprint(name, " ", v))
		case protowire.Fixed64Type:
			v, size := protowire.ConsumeFixed64(b)
			b = b[size:]
			list = append(list, fmt.Sprint(name, " ", v))
		case protowire.Fixed32Type:
			v, size := protowire.ConsumeFixed32(b)
			b = b[size:]
			list = append(list, fmt.Sprint(name, " ", v))
		default:
			t.Fatalf("%s has wire type %d", name, kind)
		}
	}
	return list
}

// A collector that first answers that it is busy later receives a request with the fields of trace.proto.
func TestACollectorGetsSpans(t *testing.T) {
	var got []byte
	calls := 0
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		got, _ = io.ReadAll(r.Body)
		if r.URL.Path != Path || r.Header.Get("Content-Type") != "application/x-protobuf" || r.Header.Get("K") != "v" {
			t.Errorf("%s %v", r.URL, r.Header)
		}
	}))
	defer collector.Close()
	e, err := New(collector.URL, map[string]string{"K": "v"})
	if err != nil {
		t.Fatal(err)
	}
	p := sdk.NewTracerProvider(sdk.WithBatcher(e),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", "s"))))
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
		TraceFlags: trace.FlagsSampled, Remote: true})
	_, span := p.Tracer("scope").Start(trace.ContextWithSpanContext(t.Context(), parent), "name",
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attribute.Int("n", -1),
			attribute.Bool("b", true), attribute.Float64("f", 0.5), attribute.StringSlice("l", []string{"x", "y"})))
	span.AddEvent("event", trace.WithAttributes(attribute.String("k", "v")))
	span.SetStatus(codes.Error, "bad")
	span.End()
	if err := p.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	messages := []string{"1", "1.1", "1.1.1", "1.1.1.2", "1.2", "1.2.1", "1.2.2", "1.2.2.9", "1.2.2.9.2",
		"1.2.2.9.2.5", "1.2.2.9.2.5.1", "1.2.2.11", "1.2.2.11.3", "1.2.2.11.3.2", "1.2.2.15"}
	list := fields(t, got, "", messages)
	text := strings.Join(list, "\n") + "\n"
	for _, want := range []string{"1.1.1.1 service.name", "1.1.1.2.1 s", "1.2.1.1 scope",
		"1.2.2.1 01000000000000000000000000000000", "1.2.2.4 0200000000000000", "1.2.2.5 name", "1.2.2.6 2",
		"1.2.2.9.1 n", "1.2.2.9.2.3 18446744073709551615", "1.2.2.9.2.2 1", "1.2.2.9.2.4 4602678819172646912",
		"1.2.2.9.2.5.1.1 x", "1.2.2.9.2.5.1.1 y", "1.2.2.11.2 event", "1.2.2.11.3.1 k", "1.2.2.11.3.2.1 v",
		"1.2.2.15.2 bad", "1.2.2.15.3 2", "1.2.2.16 769"} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if calls != 2 {
		t.Errorf("%d calls", calls)
	}
}

func TestAddressesThatAreNone(t *testing.T) {
	for _, text := range []string{"", "localhost:4318", "ftp://x", "http://"} {
		if _, err := New(text, nil); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// A collector that is busy is asked again after the time that it states, or after a second; other errors are final.
func TestAnswersOfACollector(t *testing.T) {
	for _, c := range []struct {
		status int
		after  string
		wait   time.Duration
		want   string
	}{
		{200, "", 0, "<nil>"}, {202, "", 0, "<nil>"}, {204, "", 0, "<nil>"},
		{429, "", time.Second, "429 Too Many Requests"}, {502, "", time.Second, "502 Bad Gateway"},
		{503, "1", time.Second, "503 Service Unavailable"}, {503, "2", 2 * time.Second, "503 Service Unavailable"},
		{503, "59", 59 * time.Second, "503 Service Unavailable"}, {504, "60", time.Second, "504 Gateway Timeout"},
		{503, "0", time.Second, "503 Service Unavailable"}, {503, "-5", time.Second, "503 Service Unavailable"},
		{503, "soon", time.Second, "503 Service Unavailable"},
		{400, "", -1, `400 Bad Request: "why"`}, {500, "9", -1, `500 Internal Server Error: "why"`},
		{201, "", -1, `201 Created: "why"`},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if c.after != "" {
				w.Header().Set("Retry-After", c.after)
			}
			w.WriteHeader(c.status)
			if c.status != http.StatusNoContent {
				fmt.Fprint(w, "why")
			}
		}))
		e, err := New(s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		wait, err := e.send(t.Context(), nil)
		want := c.want
		if err != nil {
			want = "otlp: " + s.URL + Path + " responded with " + c.want
		}
		if wait != c.wait || fmt.Sprint(err) != want {
			t.Errorf("status %d, Retry-After %q: wait %v, %v; want %v, %s", c.status, c.after, wait, err, c.wait, want)
		}
		s.Close()
		wait, err = e.send(t.Context(), nil)
		if wait != time.Second || err == nil || !strings.HasPrefix(err.Error(), "otlp: ") {
			t.Errorf("a closed collector: wait %v, %v", wait, err)
		}
	}
}
