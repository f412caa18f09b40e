package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// BenchmarkStreamedToken measures the server's own time for each token of a stream, without the network: merge,
// measure, encode, write and flush.
func BenchmarkStreamedToken(b *testing.B) {
	const tokens = 1000
	pieces := make([]string, tokens)
	for i := range pieces {
		pieces[i] = " word"
	}
	s, err := New(newFake(saying(pieces...)), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(hello+`,"stream":true}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if s.Handler().ServeHTTP(w, r); w.Code != http.StatusOK {
			b.Fatal(w.Code)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/tokens, "ns/token")
}
