package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"sparrow"
	"sparrow/engine"
)

// The spans of a prompt begin and end at the times of its stages, in seconds: (from,to). A request that ended earlier
// has no spans of later stages, and a period in which it was suspended is below the stage in which the request
// continued.
func TestSpansOfStages(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	period := func(from, to int) engine.Period { return engine.Period{From: at(from), To: at(to)} }
	for _, c := range []struct {
		name  string
		trace sparrow.Trace
		want  string
	}{
		{"answered", sparrow.Trace{Arrived: at(0), Admitted: at(2), First: at(5), Ended: at(9), Compiled: period(0, 1),
			Restored: engine.Restored{Period: period(2, 3)}, Parsed: period(7, 8)},
			"schema.compile(0,1) queue(0,2) prefix.match(2,2) tier.restore(2,3) prefill(2,5) decode(5,9) " +
				"decode>tools.parse(7,8)"},
		{"ended in the queue", sparrow.Trace{Arrived: at(0), Ended: at(4)}, "queue(0,4)"},
		{"ended before its first token", sparrow.Trace{Arrived: at(0), Admitted: at(1), Ended: at(4)},
			"queue(0,1) prefix.match(1,1) prefill(1,4)"},
		{"suspended in both stages", sparrow.Trace{Arrived: at(0), Admitted: at(1), First: at(6), Ended: at(9),
			Suspended: []engine.Period{period(2, 3), period(5, 7), period(7, 8)}},
			"queue(0,1) prefix.match(1,1) prefill(1,6) prefill>suspended(2,3) decode(6,9) decode>suspended(6,7) " +
				"decode>suspended(7,8)"},
		{"suspended before its first token", sparrow.Trace{Arrived: at(0), Admitted: at(1), Ended: at(9),
			Suspended: []engine.Period{period(2, 3)}},
			"queue(0,1) prefix.match(1,1) prefill(1,9) prefill>suspended(2,3)"},
	} {
		spans := tracetest.NewInMemoryExporter()
		s := &service{tracer: sdk.NewTracerProvider(sdk.WithSyncer(spans)).Tracer("")}
		_, root := s.tracer.Start(t.Context(), "root")
		s.addStages(&exchange{span: root}, &stages{list: []stage{{trace: &c.trace}}})
		names := map[string]string{}
		all := spans.GetSpans()
		for _, x := range all {
			names[x.SpanContext.SpanID().String()] = x.Name + ">"
		}
		slices.SortStableFunc(all, func(a, b tracetest.SpanStub) int {
			return a.StartTime.Compare(b.StartTime)
		})
		var got []string
		for _, x := range all {
			got = append(got, fmt.Sprintf("%s%s(%v,%v)", names[x.Parent.SpanID().String()], x.Name,
				x.StartTime.Sub(begin).Seconds(), x.EndTime.Sub(begin).Seconds()))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, text, c.want)
		}
	}
}
