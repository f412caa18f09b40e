package footprint

import (
	"strings"
	"testing"

	"sparrow/internal/testkit/heap"
)

type item struct {
	name  string
	parts []string
	next  *item
	by    map[string]string
	any   any
}

// The size that Of returns is at least three quarters and at most twice the number of bytes by which the heap grows.
func TestOfIsWhatTheHeapGrowsBy(t *testing.T) {
	for name, build := range map[string]func() *item{
		"a long string": func() *item { return &item{name: strings.Repeat("x", 100_000)} },
		"many short strings": func() *item {
			list := make([]string, 2000)
			for i := range list {
				list[i] = strings.Repeat("x", 9)
			}
			return &item{parts: list}
		},
		"many empty strings":     func() *item { return &item{parts: make([]string, 5000)} },
		"a slice with much room": func() *item { return &item{parts: make([]string, 0, 5000)} },
		"a chain of pointers": func() (first *item) {
			for range 1000 {
				first = &item{next: first}
			}
			return first
		},
		"a map": func() *item {
			m := map[string]string{}
			for i := range 1000 {
				m[strings.Repeat("k", i+1)] = "v"
			}
			return &item{by: m}
		},
		"small maps":   func() *item { return &item{any: []map[string]string{{"a": "b"}, {"c": "d"}, {}, {}}} },
		"an interface": func() *item { return &item{any: make([]byte, 100_000)} },
	} {
		t.Run(name, func(t *testing.T) {
			const copies = 20
			list := [copies]*item{}
			grown := heap.Kept(func() any {
				for i := range list {
					list[i] = build()
				}
				return &list
			})
			counted := 0
			for _, x := range &list {
				counted += Of(x)
			}
			if counted < grown*3/4 || counted > 2*grown {
				t.Errorf("counted %d bytes, the heap grew by %d", counted, grown)
			}
		})
	}
	shared := &item{name: strings.Repeat("x", 10_000)}
	if n := Once([]*item{shared, shared, shared}, shared); n < 10_000 || n > 12_500 {
		t.Errorf("a value that is referred to four times counts as %d bytes", n)
	}
	shared.next = shared
	if n := Once(shared); n > 12_500 {
		t.Errorf("a value that refers to itself counts as %d bytes", n)
	}
	if Of(nil) != 0 {
		t.Error("nil holds something")
	}
}
