package table

import (
	"fmt"
	"testing"
	"time"
)

func TestFill(t *testing.T) {
	var v struct {
		A int
		B float64
		C *bool
		D []string
		E map[string]uint8
		F [2]int32
		G time.Duration
		H time.Time
		I struct{ J int64 }
		K time.Month
	}
	Fill(&v)
	got := fmt.Sprintln(v.A, v.B, *v.C, v.D, v.E, v.F, v.G, v.H.Format(time.RFC3339), v.I.J, v.K)
	const want = "2 3.25 true [text 7 text 8] map[text 10:11 text 12:13] [15 16] 17ms 2026-01-02T03:04:18Z 20 January\n"
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
