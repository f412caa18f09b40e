package clienttest

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// metric returns the value of a metric of /metrics; name includes the labels as they are printed.
func (s *service) metric(t *testing.T, name string) float64 {
	t.Helper()
	res, err := http.Get(s.url() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return v
		}
	}
	t.Fatalf("/metrics has no %s", name)
	return 0
}
