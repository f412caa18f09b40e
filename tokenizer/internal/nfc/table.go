package nfc

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
	"unicode"
)

//go:embed unicode15.txt
var data string

// tableSet is the content of unicode15.txt.
type tableSet struct {
	class      map[rune]uint8
	decomposed map[rune][2]rune // the second is 0 for a single character
	composed   map[[2]rune]rune
	unstable   []uint64 // [code points / 64] bits, see isUnstable
}

// tables is read at first use: most tokenizers normalise nothing.
var tables = sync.OnceValue(func() *tableSet {
	t := &tableSet{
		class:      map[rune]uint8{},
		decomposed: map[rune][2]rune{},
		composed:   map[[2]rune]rune{},
		unstable:   make([]uint64, (unicode.MaxRune+1)/64),
	}
	for line := range strings.Lines(data) {
		t.read(line)
	}
	for r := rune(vowelBase); r < vowelBase+vowels; r++ {
		t.mark(r)
	}
	for r := rune(trailBase + 1); r < trailBase+trails; r++ {
		t.mark(r)
	}
	return t
})

// read takes in one line. A line that cannot be read is a broken build.
func (t *tableSet) read(line string) {
	var a, b, c rune
	switch line[0] {
	case '#':
		return
	case 'c':
		if _, err := fmt.Sscanf(line, "c %X %X %d", &a, &b, &c); err != nil {
			panic(fmt.Sprintf("nfc: unicode15.txt: %q: %v", line, err))
		}
		for ; a <= b; a++ {
			t.class[a] = uint8(c)
			t.mark(a)
		}
		return
	}
	kind := line[0]
	n, err := fmt.Sscanf(line[1:], " %X %X %X", &a, &b, &c)
	if n < 2 {
		panic(fmt.Sprintf("nfc: unicode15.txt: %q: %v", line, err))
	}
	t.decomposed[a] = [2]rune{b, c}
	if kind == 'x' {
		t.mark(a)
		return
	}
	t.composed[[2]rune{b, c}] = a
	t.mark(c)
}

func (t *tableSet) mark(r rune) { t.unstable[r/64] |= 1 << (r % 64) }

// isUnstable says whether r can change, or be joined to what stands before it. A
// character that cannot begins a segment of its own.
func (t *tableSet) isUnstable(r rune) bool { return t.unstable[r/64]&(1<<(r%64)) != 0 }
