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

// The size of each kind of value, on a machine with 64-bit addresses. An allocation of n bytes counts as n + n/8 + 16.
func TestSizesOfKinds(t *testing.T) {
	one := int64(1)
	for name, c := range map[string]struct {
		v    any
		want int
	}{
		"a number":               {one, 8},
		"a complex number":       {complex(1, 2), 16},
		"a string":               {strings.Repeat("x", 80), 16 + 80 + 10 + 16},
		"an empty string":        {"", 16},
		"a nil slice":            {[]int64(nil), 24},
		"numbers":                {make([]int64, 1, 10), 24 + 80 + 10 + 16},
		"complex numbers":        {make([]complex128, 5), 24 + 80 + 10 + 16},
		"an array of numbers":    {[3]int32{}, 12},
		"an array of strings":    {[2]string{"12345678"}, 32 + 8 + 1 + 16},
		"a slice of strings":     {[]string{"12345678", ""}, 24 + 32 + 4 + 16 + 8 + 1 + 16},
		"a pointer":              {&one, 8 + 8 + 1 + 16},
		"a nil pointer":          {(*int64)(nil), 8},
		"a nil map":              {map[int64]bool(nil), 8},
		"an empty map":           {map[int64]bool{}, 8 + 48},
		"a small map":            {map[int64]bool{1: true}, 8 + 48 + 80 + 10 + 16},
		"a map of many":          {map[int32]int32{1: 1, 2: 2, 3: 3, 4: 4, 5: 5}, 8 + 48 + 90 + 11 + 16},
		"a map of strings":       {map[string]string{"12345678": "1234"}, 8 + 48 + 264 + 33 + 16 + 8 + 1 + 16 + 4 + 16},
		"an interface":           {[]any{one}, 24 + 16 + 2 + 16 + 8 + 1 + 16},
		"an interface of nil":    {[]any{nil}, 24 + 16 + 2 + 16},
		"a pointer in interface": {[]any{&one}, 24 + 16 + 2 + 16 + 8 + 1 + 16},
		"a function":             {func() {}, 8},
	} {
		if got := Of(c.v); got != c.want {
			t.Errorf("%s has %d bytes, want %d", name, got, c.want)
		}
	}
	list, table := make([]int64, 10), map[int64]bool{1: true}
	if got, want := Once(list, list, &one, &one, table, table), 2*24+106+2*8+25+2*8+154; got != want {
		t.Errorf("values that occur twice have %d bytes, want %d", got, want)
	}
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
