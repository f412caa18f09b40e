package grammar

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

type costlySchema struct {
	name   string
	schema string
	want   error // the expected error, or nil if the schema must compile
}

// costlySchemas returns schemas that take much work or memory for their size.
func costlySchemas() []costlySchema {
	list := func(n int, format string) string {
		var parts []string
		for i := range n {
			parts = append(parts, fmt.Sprintf(format, i, i))
		}
		return strings.Join(parts, ",")
	}
	var chain strings.Builder
	for i := range 9000 {
		fmt.Fprintf(&chain, `"d%d":{"type":"array","items":{"$ref":"#/$defs/d%d"}},`, i, i+1)
	}
	return []costlySchema{
		{"many costly patterns", `{"type":"array","prefixItems":[` +
			list(1000, `{"type":"string","pattern":"%d[%d-9](a|b)*a(a|b){9}"}`) + `]}`, ErrTooLarge},
		{"classes of many ranges", `{"type":"string","pattern":"^` + strings.Repeat(`\\p{L}?\\P{Lu}?`, 100) + `$"}`,
			ErrTooLarge},
		{"nested repetition", `{"type":"string","pattern":"((((a{1,9}){1,9}){1,9}){1,9}){1,9}"}`, ErrUnsupported},
		{"two long enums", `{"enum":[` + list(4000, `%d.%d`) + `],"allOf":[{"enum":[` + list(4000, `%d.%d`) + `]}]}`,
			nil},
		{"many alternatives over many properties",
			`{"type":"object","properties":{` + list(1000, `"p%d":{"const":%d}`) + `},"anyOf":[` +
				list(250, `{"required":["p%d"],"title":"%d"}`) + `]}`, ErrTooLarge},
		{"some alternatives over many properties",
			`{"type":"object","properties":{` + list(1000, `"p%d":{"const":%d}`) + `},"anyOf":[` +
				list(100, `{"required":["p%d"],"title":"%d"}`) + `]}`, nil},
		{"a long chain of references", `{"$defs":{` + chain.String() + `"d9000":true},"$ref":"#/$defs/d0"}`, nil},
		{"opposites of many properties", `{"type":"object","oneOf":[` +
			list(60, `{"properties":{"a%d":{"minLength":1},"b":{"type":"string"},"c":{"maximum":%d}}}`) + `]}`,
			ErrTooLarge},
		{"as many alternatives as can be, told apart by a property", `{"type":"array","items":{"oneOf":[` +
			list(MaxAlternatives, `{"type":"object","properties":{"kind":{"const":"k%d"},"v":{"enum":[%d]}},`+
				`"required":["kind"],"additionalProperties":false}`) + `]}}`, nil},
		{"more alternatives than can be, each compared with each", `{"oneOf":[` +
			list(1000, `{"type":"object","required":["k"],"properties":{"k":{"const":"v%d"},"z%d":{"type":"null"}}}`) +
			`]}`, ErrTooLarge},
		{"many opposites that cannot be", `{"type":"array","prefixItems":[` +
			list(400, `{"not":{"format":"date","title":"%d"},"if":{"uniqueItems":true,"title":"%d"},"then":false}`) +
			`]}`, ErrUnsupported},
		{"opposites inside opposites", `{` + strings.Repeat(`"not":{"properties":{"a":{`, 30) +
			`"not":{"type":"null"}` + strings.Repeat(`}}}`, 30) + `}`, nil},
		{"many patterns of names", `{"type":"object","patternProperties":{` +
			list(60, `"a{%d}b?c*%d":{"type":"integer"}`) + `}}`, ErrUnsupported},
		{"many things contained", `{"type":"array","allOf":[` +
			list(3, `{"contains":{"const":%d},"minContains":1%d0}`) + `],"minItems":1000,"maxItems":1001}`,
			ErrUnsupported},
		{"as many things contained as can be", `{"type":"array","allOf":[` +
			list(3, `{"contains":{"const":%d},"minContains":1%d}`) + `],"minItems":3,"maxItems":1001}`, nil},
		{"long numbers", `{"minimum":` + strings.Repeat("9", 100000) + `}`, ErrUnsupported},
	}
}

// TestCostlySchemas checks that compiling a schema of any request ends with a grammar or an error. All schemas together
// take about a second; without the limits some would take hours or all memory.
func TestCostlySchemas(t *testing.T) {
	tokens := tokensOf(t, pieces...)
	for _, c := range costlySchemas() {
		t.Run(c.name, func(t *testing.T) {
			before := allocated()
			_, err := CompileWith([]byte(c.schema), tokens, Options{Strict: true})
			if n := allocated() - before; n > mostAllocated {
				t.Errorf("compiling allocates %d bytes, at most %d are expected", n, mostAllocated)
			}
			if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("got %.300v, want %v", err, c.want)
			}
			if c.want == nil { // nothing of the schema is unsupported, so strict compilation does the same work
				return
			}
			if _, err := Compile([]byte(c.schema), tokens); err != nil && !errors.Is(err, c.want) {
				t.Errorf("not strict: got %.300v", err)
			}
		})
	}
}

// mostAllocated is the maximum number of bytes that compiling any of these schemas may allocate, garbage included.
const mostAllocated = 80 << 20

// allocated returns the number of bytes allocated so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// TestLargeUnions checks that all alternatives of a union stay possible if the union has the maximum number of
// alternatives and they differ only late in the text.
func TestLargeUnions(t *testing.T) {
	var parts []string
	for i := range MaxAlternatives {
		parts = append(parts,
			fmt.Sprintf(
				`{"type":"object","properties":{"text":{"type":"string"},"kind":{"const":"k%d"}},"required":["kind"]}`,
				i))
	}
	tokens := tokensOf(t, pieces...)
	g := compile(t, tokens, `{"anyOf":[`+strings.Join(parts, ",")+`]}`)
	mask := make([]uint64, tokens.MaskWords())
	for _, i := range []int{0, 100, MaxAlternatives - 1} {
		s := g.Start()
		for _, b := range []byte(fmt.Sprintf(`{"text":"some text","kind":"k%d"}`, i)) {
			if err := s.Mask(mask); err != nil {
				t.Fatal(err)
			}
			if mask[b/64]>>(b%64)&1 == 0 {
				t.Fatalf("alternative %d: %q is not allowed", i, b)
			}
			accept(t, s, string(rune(b)))
		}
		if !s.Done() {
			t.Errorf("alternative %d: not complete", i)
		}
	}
	if g.Narrowed() {
		t.Error("readings were dropped")
	}
}

// TestManyPatternsAtOnceAreNarrowed checks that only some alternatives are followed if strings with many different
// patterns cannot be distinguished, because following all is costly.
func TestManyPatternsAtOnceAreNarrowed(t *testing.T) {
	var parts []string
	for i := range 100 {
		parts = append(parts, fmt.Sprintf(`{"type":"string","pattern":"^a*b{%d}$"}`, i+1))
	}
	tokens := tokensOf(t)
	g := compile(t, tokens, `{"anyOf":[`+strings.Join(parts, ",")+`]}`)
	s := g.Start()
	accept(t, s, `"aa`)
	if n := len(s.arena.states[s.id].configs); n > maxWideLeaves {
		t.Errorf("%d readings", n)
	}
	if !g.Narrowed() {
		t.Error("it is not reported")
	}
	accept(t, s, `b"`)
	if !s.Done() {
		t.Error("not complete")
	}
}
