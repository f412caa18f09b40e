package metric

import (
	"net/http/httptest"
	"testing"
)

// BenchmarkScrape measures the time of one scrape of the metrics; routers scrape every 50 ms.
func BenchmarkScrape(b *testing.B) {
	h := New(busy(), true).Handler()
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
}
