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
	const want = "3312 4569.25 true [text 3109 text 5990] map[text 399:208 text 984:59] [5155 8036] 5.826s " +
		"2026-01-01T01:58:03Z 4688 January\n"
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var names struct{ First, Second, Third [200]int }
	Fill(&names)
	seen := map[int]bool{}
	for _, list := range [][200]int{names.First, names.Second, names.Third} {
		for _, n := range list {
			if n < 100 || n > 9999 || seen[n] {
				t.Errorf("the number %d is out of range or occurs twice", n)
			}
			seen[n] = true
		}
	}
}
