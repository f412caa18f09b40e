package otlp

import (
	"math"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/encoding/protowire"
)

// Encode encodes spans, which must have the same resource, as an ExportTraceServiceRequest. The field numbers are from
// opentelemetry/proto/trace/v1/trace.proto.
func Encode(spans []sdk.ReadOnlySpan) []byte {
	var resource, scope message
	if r := spans[0].Resource(); r != nil {
		for _, kv := range r.Attributes() {
			resource.embed(1, keyValue(kv))
		}
	}
	s := spans[0].InstrumentationScope()
	scope.text(1, s.Name)
	scope.text(2, s.Version)
	var list, all, out message
	list.embed(1, scope)
	for _, s := range spans {
		list.embed(2, span(s))
	}
	all.embed(1, resource)
	all.embed(2, list)
	out.embed(1, all)
	return out
}

// message is an encoded protobuf message.
type message []byte

func (m *message) embed(field protowire.Number, part message) {
	*m = protowire.AppendTag(*m, field, protowire.BytesType)
	*m = protowire.AppendBytes(*m, part)
}

func (m *message) text(field protowire.Number, s string) {
	if s != "" {
		*m = protowire.AppendTag(*m, field, protowire.BytesType)
		*m = protowire.AppendString(*m, s)
	}
}

func (m *message) number(field protowire.Number, n uint64) {
	if n != 0 {
		*m = protowire.AppendTag(*m, field, protowire.VarintType)
		*m = protowire.AppendVarint(*m, n)
	}
}

func (m *message) moment(field protowire.Number, t time.Time) {
	*m = protowire.AppendTag(*m, field, protowire.Fixed64Type)
	*m = protowire.AppendFixed64(*m, uint64(max(t.UnixNano(), 0)))
}

func (m *message) context(trace, id protowire.Number, c trace.SpanContext) {
	t, s := c.TraceID(), c.SpanID()
	m.embed(trace, t[:])
	m.embed(id, s[:])
}

// Flags of spans: the trace is sampled, the next flag is valid, the parent is remote.
const (
	flagKnown  = 1 << 8
	flagRemote = 1 << 9
)

func span(s sdk.ReadOnlySpan) (m message) {
	c := s.SpanContext()
	m.context(1, 2, c)
	m.text(3, c.TraceState().String())
	flags := uint32(c.TraceFlags()) | flagKnown
	if p := s.Parent(); p.IsValid() {
		id := p.SpanID()
		m.embed(4, id[:])
		if p.IsRemote() {
			flags |= flagRemote
		}
	}
	m.text(5, s.Name())
	m.number(6, uint64(s.SpanKind()))
	m.moment(7, s.StartTime())
	m.moment(8, s.EndTime())
	for _, kv := range s.Attributes() {
		m.embed(9, keyValue(kv))
	}
	m.number(10, uint64(s.DroppedAttributes()))
	for _, ev := range s.Events() {
		var e message
		e.moment(1, ev.Time)
		e.text(2, ev.Name)
		for _, kv := range ev.Attributes {
			e.embed(3, keyValue(kv))
		}
		m.embed(11, e)
	}
	m.number(12, uint64(s.DroppedEvents()))
	for _, l := range s.Links() {
		var link message
		link.context(1, 2, l.SpanContext)
		for _, kv := range l.Attributes {
			link.embed(4, keyValue(kv))
		}
		m.embed(13, link)
	}
	m.number(14, uint64(s.DroppedLinks()))
	var status message
	status.text(2, s.Status().Description)
	switch s.Status().Code {
	case codes.Ok:
		status.number(3, 1)
	case codes.Error:
		status.number(3, 2)
	}
	if len(status) > 0 {
		m.embed(15, status)
	}
	m = protowire.AppendTag(m, 16, protowire.Fixed32Type)
	return protowire.AppendFixed32(m, flags)
}

func keyValue(kv attribute.KeyValue) (m message) {
	m.text(1, string(kv.Key))
	m.embed(2, value(kv.Value))
	return m
}

// value encodes an attribute's value as an AnyValue. Kinds that this program does not use are encoded as text.
func value(v attribute.Value) (m message) {
	switch v.Type() {
	case attribute.BOOL:
		m = protowire.AppendTag(m, 2, protowire.VarintType)
		m = protowire.AppendVarint(m, protowire.EncodeBool(v.AsBool()))
	case attribute.INT64:
		m = protowire.AppendTag(m, 3, protowire.VarintType)
		m = protowire.AppendVarint(m, uint64(v.AsInt64()))
	case attribute.FLOAT64:
		m = protowire.AppendTag(m, 4, protowire.Fixed64Type)
		m = protowire.AppendFixed64(m, math.Float64bits(v.AsFloat64()))
	case attribute.STRINGSLICE:
		var list message
		for _, s := range v.AsStringSlice() {
			list.embed(1, value(attribute.StringValue(s)))
		}
		m.embed(5, list)
	case attribute.STRING:
		m = protowire.AppendTag(m, 1, protowire.BytesType)
		m = protowire.AppendString(m, v.AsString())
	default:
		m = protowire.AppendTag(m, 1, protowire.BytesType)
		m = protowire.AppendString(m, v.String())
	}
	return m
}
