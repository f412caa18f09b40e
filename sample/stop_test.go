package sample

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func matcher(t testing.TB, include bool, stops ...string) *StopMatcher {
	t.Helper()
	p := Default()
	p.Stop, p.IncludeStop = stops, include
	m, err := NewStopMatcher(&p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestStopMatcher(t *testing.T) {
	cases := []struct {
		name    string
		stops   []string
		include bool
		chunks  []string
		want    []string // text released by each Push, then by Flush unless stopped
		stop    string
	}{
		{"no stop strings", nil, false, []string{"a", "b"}, []string{"a", "b", ""}, ""},
		{"in one chunk", []string{"END"}, false, []string{"abENDcd"}, []string{"ab"}, "END"},
		{"included", []string{"END"}, true, []string{"abENDcd"}, []string{"abEND"}, "END"},
		{"across chunks", []string{"END"}, false, []string{"abE", "N", "Dcd"}, []string{"ab", "", ""}, "END"},
		{"across chunks, included", []string{"END"}, true, []string{"abE", "N", "Dcd"}, []string{"ab", "", "END"},
			"END"},
		{"false start is released", []string{"END"}, false, []string{"abE", "N", "T"}, []string{"ab", "", "ENT", ""},
			""},
		{"held at the end is flushed", []string{"END"}, false, []string{"abEN"}, []string{"ab", "EN"}, ""},
		{"restart inside a false start", []string{"aab"}, false, []string{"a", "a", "a", "b"},
			[]string{"", "", "a", ""}, "aab"},
		{"first complete wins", []string{"abcd", "bc"}, false, []string{"xabcd"}, []string{"xa"}, "bc"},
		{"longest of those complete together", []string{"c", "abc"}, false, []string{"xabc"}, []string{"x"}, "abc"},
		{"each of several is held", []string{"END", "xy"}, false, []string{"abE", "ND"}, []string{"ab", ""}, "END"},
		{"a newline", []string{"\n\n"}, false, []string{"one\n", "two\n", "\nthree"}, []string{"one", "\ntwo", ""},
			"\n\n"},
		{"a stop string of several characters", []string{"終わり"}, false, []string{"終", "了、終わ", "り"},
			[]string{"", "終了、", ""}, "終わり"},
		{"the whole text", []string{"stop"}, false, []string{"stop"}, []string{""}, "stop"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := matcher(t, c.include, c.stops...)
			var got []string
			stopped := false
			for _, chunk := range c.chunks {
				var out string
				out, stopped = m.Push(chunk)
				got = append(got, out)
				if stopped {
					break
				}
			}
			if !stopped {
				got = append(got, m.Flush())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("released %q, want %q", got, c.want)
			}
			if stop, ok := m.Matched(); stop != c.stop || ok != (c.stop != "") {
				t.Errorf("matched %q, want %q", stop, c.stop)
			}
			if stopped {
				if out, again := m.Push("more"); out != "" || !again {
					t.Errorf("after the stop, Push gave %q, %v", out, again)
				}
			}
		})
	}
}

func TestStopTokens(t *testing.T) {
	p := Default()
	p.StopTokenIDs = []int32{3, 9}
	m, err := NewStopMatcher(&p)
	if err != nil {
		t.Fatal(err)
	}
	if !m.Token(9) || m.Token(4) {
		t.Errorf("token 9: %v, token 4: %v", m.Token(9), m.Token(4))
	}
	p.Stop = []string{""}
	if _, err := NewStopMatcher(&p); !errors.Is(err, ErrParams) {
		t.Errorf("empty stop string: %v", err)
	}
}

// firstStop returns the first stop by definition: the match with the earliest end, and of these the longest.
func firstStop(text string, stops []string) (start, end int) {
	for end = 1; end <= len(text); end++ {
		longest := 0
		for _, s := range stops {
			if strings.HasSuffix(text[:end], s) {
				longest = max(longest, len(s))
			}
		}
		if longest > 0 {
			return end - longest, end
		}
	}
	return -1, -1
}

// part generates pieces of the stop strings that consist of whole characters, so that their beginnings and ends are
// common.
func part(stops []string) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		runes := []rune(rapid.SampledFrom(stops).Draw(t, "stop"))
		cut := rapid.IntRange(0, len(runes)).Draw(t, "cut")
		if rapid.Bool().Draw(t, "end") {
			return string(runes[cut:])
		}
		return string(runes[:cut])
	})
}

// TestChunksDoNotMatter checks that any division of a text into chunks gives the text up to the first stop, never
// retracts a byte and never splits a character.
func TestChunksDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := []rune("abé\n")
		stops := rapid.SliceOfN(rapid.StringOfN(rapid.SampledFrom(letters), 1, 5, -1), 1, 4).Draw(t, "stops")
		chunks := rapid.SliceOfN(rapid.OneOf(rapid.StringOfN(rapid.SampledFrom(letters), 0, 4, -1), part(stops)), 0,
			12).Draw(t, "chunks")
		p := Default()
		p.Stop, p.IncludeStop = stops, rapid.Bool().Draw(t, "include")
		m, err := NewStopMatcher(&p)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(chunks, "")
		want := text
		start, end := firstStop(text, stops)
		if start >= 0 {
			want = text[:start]
			if p.IncludeStop {
				want = text[:end]
			}
		}
		got, stopped := "", false
		for _, c := range chunks {
			var out string
			if out, stopped = m.Push(c); !utf8.ValidString(out) {
				t.Fatalf("released half a character: %q", out)
			}
			if got += out; stopped {
				break
			}
		}
		if !stopped {
			got += m.Flush()
		}
		if got != want || stopped != (start >= 0) {
			t.Fatalf("stops %q, chunks %q: got %q (stopped %v), want %q", stops, chunks, got, stopped, want)
		}
	})
}
