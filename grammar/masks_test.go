package grammar

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// variedSchema draws a schema as they are met: objects with patterns, bounded strings, formats, numbers, enums, arrays
// and alternatives.
func variedSchema(r *rand.Rand, depth int) string {
	pick := r.IntN(13)
	if depth == 0 {
		pick = r.IntN(9)
	}
	switch pick {
	case 0:
		return `{"type":"string"}`
	case 1:
		return fmt.Sprintf(`{"type":"string","minLength":%d,"maxLength":%d}`, r.IntN(3), 3+r.IntN(200))
	case 2:
		return fmt.Sprintf(`{"type":"string","pattern":"^[a-z]{%d,%d}(-[A-Za-z0-9]+)*$"}`, 1+r.IntN(3), 4+r.IntN(20))
	case 3:
		return fmt.Sprintf(`{"type":"string","pattern":"^(%s|[0-9]+ .*)$"}`, string(rune('a'+r.IntN(26))))
	case 4:
		names := []string{"date-time", "email", "uri", "uuid", "ipv4", "hostname", "date"}
		return fmt.Sprintf(`{"type":"string","format":%q}`, names[r.IntN(len(names))])
	case 5:
		return fmt.Sprintf(`{"type":"integer","minimum":%d,"maximum":%d}`, -r.IntN(100), r.IntN(100000))
	case 6:
		return `{"type":["number","null"]}`
	case 7:
		var list []string
		for i := range 2 + r.IntN(30) {
			list = append(list, fmt.Sprintf(`"value %d %c"`, i, 'a'+r.IntN(26)))
		}
		return `{"enum":[` + strings.Join(list, ",") + `]}`
	case 8:
		return `{"type":"boolean"}`
	case 9:
		return fmt.Sprintf(`{"type":"array","items":%s,"minItems":%d,"maxItems":%d}`, variedSchema(r, depth-1),
			r.IntN(2), 2+r.IntN(5))
	case 10:
		return fmt.Sprintf(`{"anyOf":[%s,%s,%s]}`, variedSchema(r, depth-1), variedSchema(r, depth-1),
			variedSchema(r, depth-1))
	}
	return variedObject(r, depth)
}

func variedObject(r *rand.Rand, depth int) string {
	var props, required []string
	for i := range 2 + r.IntN(5) {
		name := fmt.Sprintf("%c%d", 'a'+r.IntN(26), i)
		props = append(props, fmt.Sprintf("%q:%s", name, variedSchema(r, depth-1)))
		if r.IntN(3) > 0 {
			required = append(required, fmt.Sprintf("%q", name))
		}
	}
	more := ""
	switch r.IntN(4) {
	case 0:
		more = `,"additionalProperties":false`
	case 1:
		more = `,"patternProperties":{"^x-":{"type":"string"}},"additionalProperties":false`
	}
	return fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%s]%s}`, strings.Join(props, ","),
		strings.Join(required, ","), more)
}

// BenchmarkMasks times the masks of documents under many different schemas, each compiled anew: what a server that
// sees a schema for the first time takes.
func BenchmarkMasks(b *testing.B) {
	tokens := benchVocabulary(b)
	mask := make([]uint64, tokens.MaskWords())
	for b.Loop() {
		r := rand.New(rand.NewPCG(1, 2))
		var times []time.Duration
		for range 1000 {
			g, err := Compile([]byte(variedObject(r, 3)), tokens)
			if err != nil {
				b.Fatal(err)
			}
			s := g.Start()
			for range 60 {
				started := time.Now()
				if err := s.Mask(mask); err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(started))
				id := pickToken(r, tokens, mask)
				if err := s.Accept(id); err != nil {
					b.Fatal(err)
				}
				if s.Final() {
					break
				}
			}
		}
		slices.Sort(times)
		var sum time.Duration
		for _, d := range times {
			sum += d
		}
		us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
		b.ReportMetric(us(sum)/float64(len(times)), "us/mask")
		b.ReportMetric(us(times[len(times)/2]), "us/median")
		b.ReportMetric(us(times[len(times)*99/100]), "us/99th")
		b.ReportMetric(us(times[len(times)-1]), "us/worst")
	}
}

// pickToken draws an allowed token, one that ends a string more often than the others.
func pickToken(r *rand.Rand, t *Tokens, mask []uint64) int32 {
	allows := func(id int) bool { return mask[id/64]>>(id%64)&1 == 1 }
	if allows('"') && r.IntN(6) == 0 {
		return '"'
	}
	from := r.IntN(len(mask))
	for i := range len(mask) + 1 {
		at := (from + i) % len(mask)
		for w := mask[at]; w != 0; w &= w - 1 {
			if id := int32(64*at + bits.TrailingZeros64(w)); !slices.Contains(t.eos, id) {
				return id
			}
		}
	}
	return t.eos[0]
}

// TestSlicesChangeNoMask compares masks with those of a walk over all tokens.
func TestSlicesChangeNoMask(t *testing.T) {
	with, err := NewTokens(largeVocabulary(20000))
	if err != nil {
		t.Fatal(err)
	}
	if len(with.slices) == 0 {
		t.Fatal("no slices")
	}
	without := &Tokens{size: with.size, trie: with.trie}
	without.slices = nil
	taken := 0
	for _, pattern := range []string{"^[a-z]*$", "^[a-z]{3,9}$", "^[A-Za-z]+[0-9]$", ".", "^.{0,7}$", "^[^x]*$",
		"^[a-z ]+$", "^[\\w.-]+@[a-z]+$", formats["email"], formats["uri"], formats["hostname"]} {
		d, err := compilePattern(pattern, &effort{left: maxEffort})
		if err != nil {
			t.Fatal(err)
		}
		leaves := []leaf{&patternLeaf{dfa: d}, &patternKey{patternLeaf{dfa: d}}, &stringLeaf{1, 9},
			newFreeKey([]string{"an"})}
		for _, l := range leaves {
			for _, text := range []string{``, `"`, `"a`, `"an`, `"aber`} {
				q, ok := l.start(), true
				for i := 0; i < len(text) && ok; i++ {
					q, ok = l.step(q, text[i])
				}
				if !ok {
					continue
				}
				if with.sliceOf(l, q) != nil {
					taken++
				}
				got, want := with.explore(l, q), without.explore(l, q)
				if !slices.Equal(got.whole.words, want.whole.words) || !slices.Equal(got.whole.ids, want.whole.ids) ||
					!slices.Equal(got.exits, want.exits) {
					t.Errorf("%T %q after %s: other masks with slices", l, pattern, text)
				}
			}
		}
	}
	if taken < 20 {
		t.Errorf("slices were used %d times only", taken)
	}
}
