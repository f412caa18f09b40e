package server

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"sparrow"
	"sparrow/engine"
)

// A request has a span, whose parent is in the header traceparent, with a child span for each stage of each prompt. The
// child spans are created when the request has ended, from times that the engine has recorded.

// tracerName is the instrumentation scope of the spans.
const tracerName = "sparrow/server"

var traceContext propagation.TraceContext

// stages collects the times of the stages of a request's prompts. It is safe for concurrent use.
type stages struct {
	mu   sync.Mutex
	list []stage
}

type stage struct {
	prompt int
	finish sparrow.Finish
	trace  *sparrow.Trace
	usage  sparrow.Usage
}

// note stores the last event of a prompt.
func (s *stages) note(prompt int, ev *sparrow.Event) {
	if s == nil || ev.TraceLog == nil || ev.Usage == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, stage{prompt, ev.Finish, ev.TraceLog, *ev.Usage})
}

// beginSpan begins the span of a request, if requests are traced.
func (s *Server) beginSpan(r *http.Request, x *exchange) *http.Request {
	if s.tracer == nil {
		return r
	}
	ctx := traceContext.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, x.span = s.tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithTimestamp(x.arrived))
	return r.WithContext(ctx)
}

// endSpan completes the span of a request. The spans of probes and scrapes are not ended, so that they are not
// exported.
func (x *exchange) endSpan(method string, status int) {
	if x.span == nil || x.access == probe {
		return
	}
	x.span.SetName(method + " " + x.route)
	x.span.SetAttributes(attribute.String("http.request.method", method), attribute.String("http.route", x.route),
		attribute.Int("http.response.status_code", status), attribute.String("sparrow.request.id", x.id))
	if x.tenant != "" {
		x.span.SetAttributes(attribute.String("sparrow.tenant", x.tenant))
	}
	if u := x.usage; u.PromptTokens > 0 {
		x.span.SetAttributes(attribute.Int("gen_ai.usage.input_tokens", u.PromptTokens),
			attribute.Int("gen_ai.usage.output_tokens", u.CompletionTokens),
			attribute.Int("sparrow.cached_tokens", u.CachedTokens),
			attribute.Int("sparrow.drafted_tokens", u.DraftedTokens),
			attribute.Int("sparrow.accepted_tokens", u.AcceptedTokens))
	}
	switch {
	case x.fault != nil && clientGone(x.fault):
		x.span.SetAttributes(attribute.String("error.type", "client_gone"))
		x.span.SetStatus(codes.Error, "the client disconnected")
	case x.fault != nil:
		x.span.SetAttributes(attribute.String("error.type", string(faultCode(x))))
		if status >= http.StatusInternalServerError {
			x.span.SetStatus(codes.Error, string(faultCode(x)))
		}
	}
	x.span.End()
}

// traced reports whether the spans of a request are exported.
func (x *exchange) traced() bool { return x.span != nil && x.span.IsRecording() }

// traceID returns the id of the request's trace, or "" without one.
func (x *exchange) traceID() string {
	if x.span == nil || !x.span.SpanContext().HasTraceID() {
		return ""
	}
	return x.span.SpanContext().TraceID().String()
}

// addStages creates the spans of the stages of all prompts.
func (s *service) addStages(x *exchange, all *stages) {
	if all == nil {
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	for i := range all.list {
		s.addStage(x, &all.list[i])
	}
}

func (s *service) addStage(x *exchange, st *stage) {
	ctx := trace.ContextWithSpan(context.Background(), x.span)
	t := st.trace
	common := []attribute.KeyValue{attribute.Int("sparrow.prompt", st.prompt)}
	add := func(ctx context.Context, name string, p engine.Period, attrs ...attribute.KeyValue) context.Context {
		if p.From.IsZero() || p.To.IsZero() {
			return ctx
		}
		ctx, span := s.tracer.Start(ctx, name, trace.WithTimestamp(p.From),
			trace.WithAttributes(append(attrs, common...)...))
		span.End(trace.WithTimestamp(p.To))
		return ctx
	}
	add(ctx, "schema.compile", t.Compiled)
	queued := engine.Period{From: t.Arrived, To: t.Admitted}
	if t.Admitted.IsZero() { // the request ended in the queue
		queued.To = t.Ended
	}
	add(ctx, "queue", queued)
	if t.Admitted.IsZero() {
		return
	}
	add(ctx, "prefix.match", engine.Period{From: t.Admitted, To: t.Admitted},
		attribute.Int("sparrow.prefix.tokens", t.Match.Tokens), attribute.Int("sparrow.prefix.prompt", t.Match.Prompt),
		attribute.String("sparrow.prefix.stop", t.Match.Stop.String()))
	add(ctx, "tier.restore", t.Restored.Period, attribute.Int("sparrow.restored_tokens", t.Restored.Tokens),
		attribute.String("sparrow.restore.stop", t.Restored.Stop))
	prefill, decode := engine.Period{From: t.Admitted, To: t.First}, engine.Period{From: t.First, To: t.Ended}
	if t.First.IsZero() {
		prefill.To = t.Ended
	}
	inside := add(ctx, "prefill", prefill, attribute.Int("sparrow.cached_tokens", st.usage.CachedTokens),
		attribute.Int("gen_ai.usage.input_tokens", st.usage.PromptTokens))
	decoding := add(ctx, "decode", decode, attribute.Int("gen_ai.usage.output_tokens", st.usage.CompletionTokens),
		attribute.Int("sparrow.drafted_tokens", st.usage.DraftedTokens),
		attribute.Int("sparrow.accepted_tokens", st.usage.AcceptedTokens),
		attribute.Int("sparrow.steps", t.Steps), attribute.Int("sparrow.preempted", t.Preempted),
		attribute.String("sparrow.finish", string(st.finish)), attribute.StringSlice("sparrow.plans", planNames(t)))
	for _, p := range t.Suspended {
		at := inside
		if !t.First.IsZero() && p.To.After(t.First) {
			at = decoding
			if p.From.Before(t.First) { // the last prompt step computed the first token
				p.From = t.First
			}
		}
		add(at, "suspended", p)
	}
	add(decoding, "tools.parse", t.Parsed, attribute.Int("sparrow.tool_calls", t.Calls))
}

// planNames returns the names of the plans that computed the request's rows, each once.
func planNames(t *sparrow.Trace) (names []string) {
	seen := map[string]bool{}
	for _, use := range t.Plans {
		if use.Plan == nil {
			continue
		}
		for i := range use.Plan.Segments {
			seg := &use.Plan.Segments[i]
			name := strings.Join([]string{seg.Row.String(), seg.Form.String(), seg.Kernel.String()}, "/")
			if !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}
