package host

import (
	"strings"
	"testing"

	"sparrow/kernel"
)

func TestParseNodes(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "": 1, "0-1": 2, "0-7": 8, "0-63": 64, "0-64": 1, "1-3": 1,
		"0-1,3": 1, "0,2": 1, "10-3": 1, "0-x": 1} {
		if got := parseNodes(list); got != want {
			t.Errorf("%q: %d nodes, want %d", list, got, want)
		}
	}
}

// Placement hints do not change the memory: it is zero, writable, and of the requested size.
func TestLargeBuffersAreUsable(t *testing.T) {
	for _, n := range []int64{large - 1, large, large + 4097} {
		b, err := Memory{}.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		bytes := []byte(b.(kernel.HostBuffer))
		for i := 0; i < len(bytes); i += 4096 {
			if bytes[i] != 0 {
				t.Fatalf("byte %d is %d", i, bytes[i])
			}
			bytes[i] = 1
		}
	}
	if s := Placement(); s == "" || strings.Contains(s, "\n") {
		t.Errorf("placement %q is not one line", s)
	}
}
