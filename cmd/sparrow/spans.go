package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"sparrow/internal/otlp"
)

// spanFlags configure the export of spans.
type spanFlags struct {
	traceTo     string
	traceSample float64
	traceHeader []string
	traceName   string
}

func (f *spanFlags) add(s *pflag.FlagSet) {
	s.StringVar(&f.traceTo, "trace-endpoint", "", "collector for spans of requests (OpenTelemetry, OTLP over HTTP), "+
		"such as http://localhost:4318; without it no spans are recorded")
	s.Float64Var(&f.traceSample, "trace-sample", 0.1, "share of the requests without a traceparent header that are "+
		"traced, 0 to 1; requests with the header follow its flag")
	s.StringSliceVar(&f.traceHeader, "trace-header", nil, "NAME=VALUE: headers for the collector")
	s.StringVar(&f.traceName, "trace-service", "sparrow", "service.name of the spans")
}

func (f *spanFlags) check(s *pflag.FlagSet) error {
	for _, name := range []string{"trace-sample", "trace-header", "trace-service"} {
		if f.traceTo == "" && s.Changed(name) {
			return fmt.Errorf("--%s applies to spans; add --trace-endpoint URL, or omit it", name)
		}
	}
	if !(f.traceSample >= 0 && f.traceSample <= 1) {
		return fmt.Errorf("--trace-sample is %v, want 0 to 1", f.traceSample)
	}
	return nil
}

// open creates the provider of spans; it returns nil if there is no collector.
func (f *spanFlags) open(log *slog.Logger) (*sdk.TracerProvider, error) {
	if f.traceTo == "" {
		return nil, nil
	}
	headers := map[string]string{}
	for _, h := range f.traceHeader {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--trace-header %q: want NAME=VALUE", h)
		}
		headers[name] = value
	}
	e, err := otlp.New(f.traceTo, headers)
	if err != nil {
		return nil, errors.Join(errors.New("--trace-endpoint"), err)
	}
	return sdk.NewTracerProvider(
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(f.traceSample))),
		sdk.WithBatcher(&loggedExporter{SpanExporter: e, log: log}),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", f.traceName),
			attribute.String("service.version", version()))),
	), nil
}

// loggedExporter logs the loss of spans; without it, the SDK prints to standard error.
type loggedExporter struct {
	sdk.SpanExporter
	log *slog.Logger
}

// ExportSpans forwards spans to the exporter.
func (e *loggedExporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.log.Warn("spans could not be sent to --trace-endpoint and are lost", "spans", len(spans), "error", err)
	}
	return nil
}

// spanGrace is the maximum time for sending the last spans.
const spanGrace = 5 * time.Second

// closeSpans sends the remaining spans.
func closeSpans(p *sdk.TracerProvider) error {
	ctx, cancel := context.WithTimeout(context.Background(), spanGrace)
	defer cancel()
	return p.Shutdown(ctx)
}
