package mark

import (
	"slices"
	"strings"
	"testing"
)

// Joining and cutting marked texts in any order keeps the mark of every byte.
func FuzzMarksFollowTheirBytes(f *testing.F) {
	f.Add("ab", "cd", "ef", 1, 5)
	f.Add("", "x", "", 0, 1)
	f.Fuzz(func(t *testing.T, a, b, c string, from, to int) {
		var out Builder
		out.WriteString(a)
		out.Mark(b)
		out.Write(Marked(c))
		out.WriteString(a)
		out.Write(Plain(b))
		text := out.Text()
		marks := strings.Repeat("-", len(a)) + strings.Repeat("#", len(b)+len(c)) + strings.Repeat("-", len(a)+len(b))
		if text.String() != a+b+c+a+b || shown(text) != marks {
			t.Fatalf("%q with marks %s, want %s", text, shown(text), marks)
		}
		n := len(marks)
		if from < 0 || to > n || from > to {
			return
		}
		if cut := text.Cut(from, to); cut.String() != text.String()[from:to] || shown(cut) != marks[from:to] {
			t.Fatalf("bytes %d to %d have marks %s, want %s", from, to, shown(cut), marks[from:to])
		}
	})
}

func TestTouchingMarksAreOneSpan(t *testing.T) {
	var b Builder
	b.Mark("a")
	b.Mark("")
	b.Mark("b")
	if got := b.Text().Spans(); !slices.Equal(got, []Span{{0, 2}}) {
		t.Errorf("%v", got)
	}
}

func TestMapSeesMarkedAndOtherRunsApart(t *testing.T) {
	var b Builder
	b.WriteString("one")
	b.Mark("two")
	b.WriteString("three")
	got := b.Text().Map(func(s string) string { return "<" + s + ">" })
	if got.String() != "<one><two><three>" || shown(got) != "-----#####-------" {
		t.Errorf("%s %s", got, shown(got))
	}
}

// shown returns # for every marked byte of t and - for every other byte.
func shown(t Text) string {
	out := []byte(strings.Repeat("-", len(t.String())))
	for _, m := range t.Spans() {
		for i := m.Start; i < m.End; i++ {
			out[i] = '#'
		}
	}
	return string(out)
}
