package clienttest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"sparrow"
	"sparrow/internal/otlp"
	"sparrow/internal/spec"
	"sparrow/internal/testkit/cputime"
	"sparrow/server"
)

// BenchmarkTracing measures the cost of tracing every request. The built-in model generates 200 tokens per request, for
// one and for 16 concurrent requests, with tracing on and off in alternating turns. Spans are sent to a collector that
// drops them. One worker is used, so that no worker spins. The benchmark prints the speed with tracing relative to the
// speed without, as the median over pairs of turns, by wall-clock time and by processor time of the process.
func BenchmarkTracing(b *testing.B) {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
	}))
	defer collector.Close()
	exporter, err := otlp.New(collector.URL, nil)
	if err != nil {
		b.Fatal(err)
	}
	provider := sdk.NewTracerProvider(sdk.WithSampler(sdk.ParentBased(sdk.NeverSample())), sdk.WithBatcher(exporter))
	defer provider.Shutdown(context.Background())
	e, err := sparrow.Open(b.Context(), sparrow.Config{CacheTokens: 16384, Draft: spec.Off(), Workers: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close(context.Background())
	s, err := server.New(server.Adapt(e), server.Options{Traces: provider})
	if err != nil {
		b.Fatal(err)
	}
	front := httptest.NewServer(s.Handler())
	defer front.Close()
	turn := func(answers int, flag string) (took, used time.Duration) {
		begun, before := time.Now(), cputime.Process()
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() {
				r, err := http.NewRequest(http.MethodPost, front.URL+"/v1/completions", strings.NewReader(fmt.Sprintf(
					`{"model": "sparrow-tiny", "prompt": "%d", "max_tokens": 200, "ignore_eos": true}`, i)))
				if err != nil {
					b.Error(err)
					return
				}
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("traceparent", fmt.Sprintf("00-%032x-%016x-%s", i+1, i+1, flag))
				got, err := http.DefaultClient.Do(r)
				if err != nil {
					b.Error(err)
					return
				}
				defer got.Body.Close()
				if _, err := io.Copy(io.Discard, got.Body); err != nil || got.StatusCode != http.StatusOK {
					b.Error(got.Status, err)
				}
			})
		}
		all.Wait()
		return time.Since(begun), cputime.Process() - before
	}
	for _, answers := range []int{1, 16} {
		b.Run(fmt.Sprint(answers), func(b *testing.B) {
			var byDay, byProcessor []float64
			for i := range max(b.N, 8) + 1 {
				var took, used [2]time.Duration
				for k := range 2 { // with and without tracing are first equally often
					on := (i + k) % 2
					took[on], used[on] = turn(answers, fmt.Sprintf("%02x", on))
				}
				if i > 0 { // the first pair warms up
					byDay = append(byDay, took[0].Seconds()/took[1].Seconds())
					byProcessor = append(byProcessor, used[0].Seconds()/used[1].Seconds())
				}
			}
			slices.Sort(byDay)
			slices.Sort(byProcessor)
			b.ReportMetric(byDay[len(byDay)/2], "speed")
			b.ReportMetric(byProcessor[len(byProcessor)/2], "speed/processor")
			b.ReportMetric(0, "ns/op")
		})
	}
}
