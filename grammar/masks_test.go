package grammar

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"sparrow/internal/testkit/cputime"
)

// variedSchema returns a random schema of typical kinds: objects with patterns, bounded strings, formats, numbers,
// enums, arrays and alternatives.
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

// BenchmarkMasks measures the masks of documents under many different schemas, each compiled first, as in a server that
// receives a schema for the first time. The benchmark measures processor time, which does not include other programs.
func BenchmarkMasks(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := heapBytes()
	tokens := benchVocabulary(b)
	mask := make([]uint64, tokens.MaskWords())
	for b.Loop() {
		r := rand.New(rand.NewPCG(1, 2))
		var times, firsts []time.Duration
		for range 1000 {
			compiling := cputime.Thread()
			g, err := Compile([]byte(variedObject(r, 3)), tokens)
			if err != nil {
				b.Fatal(err)
			}
			s := g.Start()
			for i := range 60 {
				started := cputime.Thread()
				if err := s.Mask(mask); err != nil {
					b.Fatal(err)
				}
				ended := cputime.Thread()
				times = append(times, ended-started)
				if i == 0 {
					firsts = append(firsts, ended-compiling)
				}
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
		slices.Sort(firsts)
		var sum time.Duration
		for _, d := range times {
			sum += d
		}
		us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
		b.ReportMetric(us(sum)/float64(len(times)), "us/mask")
		b.ReportMetric(us(times[len(times)/2]), "us/median")
		b.ReportMetric(us(times[len(times)*99/100]), "us/99th")
		b.ReportMetric(us(times[len(times)-1]), "us/worst")
		b.ReportMetric(us(firsts[len(firsts)/2]), "us/compile+first")
	}
	b.ReportMetric(float64(heapBytes()-before)/(1<<20), "MiB/vocabulary")
	runtime.KeepAlive(tokens)
}

// BenchmarkFirstMasks measures the work before the first token under a new schema: compiling the schema and computing
// the first mask. The schemas are those of this package's tests, with the costly ones counted separately, and those of
// the JSON Schema test suite if its folder is given. The benchmark also measures the masks of a whole document.
func BenchmarkFirstMasks(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	schemas := slices.Concat(walkSchemas, suiteSchemas(b))
	for _, c := range schemaCases() {
		schemas = append(schemas, c.schema)
	}
	r := rand.New(rand.NewPCG(7, 8))
	for range 2000 {
		schemas = append(schemas, variedObject(r, 3))
	}
	usual := len(schemas)
	for _, c := range costlySchemas() {
		schemas = append(schemas, c.schema)
	}
	tokens := benchVocabulary(b)
	mask := make([]uint64, tokens.MaskWords())
	for b.Loop() {
		var compiling, costly, firsts, masks []time.Duration
		for n, schema := range schemas {
			started := cputime.Thread()
			g, err := Compile([]byte(schema), tokens)
			if err != nil {
				continue // the schema is refused
			}
			compiled := cputime.Thread()
			s := g.Start()
			for i := range 60 {
				before := cputime.Thread()
				if err := s.Mask(mask); err != nil {
					b.Fatal(err)
				}
				d := cputime.Thread() - before
				if masks = append(masks, d); i == 0 {
					firsts = append(firsts, d)
					if n < usual {
						compiling = append(compiling, d+compiled-started)
					} else {
						costly = append(costly, d+compiled-started)
					}
				}
				if err := s.Accept(pickToken(r, tokens, mask)); err != nil {
					b.Fatal(err)
				}
				if s.Final() {
					break
				}
			}
		}
		b.ReportMetric(float64(len(firsts)), "schemas")
		for name, times := range map[string][]time.Duration{"compile+first": compiling,
			"compile+first-costly": costly, "first": firsts, "mask": masks} {
			slices.Sort(times)
			at := func(share float64) float64 {
				return float64(times[int(share*float64(len(times)-1))].Microseconds()) / 1000
			}
			b.ReportMetric(at(0.5), "ms/"+name+"-p50")
			b.ReportMetric(at(0.999), "ms/"+name+"-p99.9")
			b.ReportMetric(at(1), "ms/"+name+"-worst")
		}
	}
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// pickToken returns a random allowed token. Tokens that end a string are preferred.
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

// expanded returns the exits of a mask (nodes of the token trie at which the leaf may end) in order.
func expanded(t *Tokens, m *leafMask) (exits []exit) {
	for _, e := range m.exits {
		if !e.shape {
			exits = append(exits, e)
			continue
		}
		for _, node := range t.shapes.nodes(e.node) {
			if !t.trie.isLeaf(node) {
				exits = append(exits, exit{node: node, tag: e.tag})
			}
		}
	}
	slices.SortFunc(exits, func(a, b exit) int { return int(a.node - b.node) })
	return slices.Compact(exits)
}

// TestShapesChangeNoMask checks that the mask of a leaf, in states that random texts lead to, equals the mask that a
// walk over all tokens byte by byte gives.
func TestShapesChangeNoMask(t *testing.T) {
	tokens, err := NewTokens(largeVocabulary(8000))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	var leaves []leaf
	for _, pattern := range []string{"^[a-z]*$", "^[a-z]{3,9}$", "^[A-Za-z]+[0-9]$", ".", "^.{0,7}$", "^[^x]*$", "an",
		"(ber|tion).*[0-9]$", "^[a-z ]+$", "^[\\w.-]+@[a-z]+$", "^[^\\n日]*$", "\\\\|é", "^(a|[0-9]+ .*)$",
		"^[0-9a-f]{8}(-[0-9a-f]{4})*$", "[\"\u2028]", formats["email"].patterns[0], formats["uri"].patterns[0],
		formats["hostname"].patterns[0]} {
		d, err := compilePattern(pattern, &effort{left: maxEffort})
		if err != nil {
			t.Fatalf("%s: %v", pattern, err)
		}
		counted := &patternLeaf{dfa: d}
		if counted.atMost(20) {
			leaves = append(leaves, counted)
		}
		leaves = append(leaves, &patternLeaf{dfa: d}, &patternKey{patternLeaf{dfa: d}}, &textLeaf{patternLeaf{dfa: d}})
	}
	leaves = append(leaves, &stringLeaf{0, noLimit}, &stringLeaf{1, 9}, &stringLeaf{4, 4}, &stringLeaf{0, 40},
		&stringLeaf{30, noLimit}, newFreeKey(nil), newFreeKey([]string{"an"}),
		newFreeKey([]string{"a", "an", "ab", "aber", "na", "na\"me", "日本", "é", "\n", ""}))
	for _, l := range leaves {
		for range 12 {
			q, text := randomState(r, tokens, l)
			got, want := tokens.explore(l, q), tokens.exploreBytes(l, q)
			if !slices.Equal(got.whole.words, want.whole.words) || !slices.Equal(got.whole.ids, want.whole.ids) {
				t.Errorf("%T %+v after %q: other tokens", l, l, text)
			}
			if !slices.Equal(expanded(tokens, got), expanded(tokens, want)) {
				t.Errorf("%T %+v after %q: other exits", l, l, text)
			}
		}
	}
}

// TestKindRangesAreKinds checks that the ranges of characters contain exactly the characters of their kind.
func TestKindRangesAreKinds(t *testing.T) {
	counted := 0
	for k, ranges := range kindRanges() {
		for i, e := range ranges {
			if i > 0 && e.lo <= ranges[i-1].hi {
				t.Fatalf("kind %d: %x is not behind %x", k, e.lo, ranges[i-1].hi)
			}
			for r := e.lo; r <= e.hi; r++ {
				if counted++; kindOf(r) != kindLower+byte(k) {
					t.Fatalf("%x is of kind %d, not %d", r, kindOf(r)-kindLower, k)
				}
			}
		}
	}
	if want := int(unicode.MaxRune) + 1 - utf8.RuneSelf + 62 - 0x800; counted != want { // surrogates are not characters
		t.Errorf("%d characters have a range, want %d", counted, want)
	}
}

// randomState returns a state of a leaf after random bytes that the leaf accepts, mostly those of tokens, and these
// bytes.
func randomState(r *rand.Rand, t *Tokens, l leaf) (q uint64, text []byte) {
	q = l.start()
	for range r.IntN(14) {
		next := []byte{byte(r.IntN(256))}
		switch r.IntN(4) {
		case 0:
			next = t.bytes(int32(r.IntN(t.size)))
		case 1:
			next = []byte{"\"\\anu0 "[r.IntN(7)]}
		}
		for _, b := range next {
			n, ok := l.step(q, b)
			if !ok {
				break
			}
			q, text = n, append(text, b)
		}
	}
	return q, text
}

// TestMasksAreExact checks, in random states of random schemas, that a mask allows exactly the tokens that Accept
// accepts.
func TestMasksAreExact(t *testing.T) {
	tokens, err := NewTokens(largeVocabulary(2500))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 6))
	schemas := slices.Clone(walkSchemas)
	for range 60 {
		schemas = append(schemas, variedObject(r, 3))
	}
	mask := make([]uint64, tokens.MaskWords())
	for _, schema := range schemas {
		g := compile(t, tokens, schema)
		s := g.Start()
		for step := range 40 {
			if err := s.Mask(mask); err != nil {
				t.Fatal(err)
			}
			if step == 0 || r.IntN(6) == 0 {
				checkMask(t, schema, s, mask)
			}
			if err := s.Accept(pickToken(r, tokens, mask)); err != nil {
				t.Fatal(err)
			}
			if s.Final() {
				break
			}
		}
	}
}

func checkMask(t *testing.T, schema string, s *State, mask []uint64) {
	t.Helper()
	for id := range int32(s.g.tokens.size) {
		if taken := s.Clone().Accept(id) == nil; taken != (mask[id/64]>>(id%64)&1 == 1) {
			t.Errorf("%s: token %q: taken is %v, the mask says otherwise", schema, s.g.tokens.bytes(id), taken)
		}
	}
}
