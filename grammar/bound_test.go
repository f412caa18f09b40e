package grammar

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"sparrow/internal/testkit/heap"
)

// The cache of masks stays within its limit in bytes for every kind of mask: full bitmaps, masks with many exits, and
// masks without exits.
func TestMaskCachesAreBoundedInBytes(t *testing.T) {
	for name, mask := range map[string]func() *leafMask{
		"bitmaps": func() *leafMask { return &leafMask{whole: &tokenSet{words: make([]uint64, 2020)}} },
		"exits":   func() *leafMask { return &leafMask{whole: &tokenSet{}, exits: make([]exit, 100_000)} },
		"small":   func() *leafMask { return &leafMask{whole: &tokenSet{ids: make([]int32, 4)}} },
	} {
		t.Run(name, func(t *testing.T) {
			const limit = 4 << 20
			before := heapBytes()
			c := newMaskCache(limit)
			for i := 0; ; i++ {
				c.put(maskKey{class: uint64(i)}, mask())
				if c.get(maskKey{}) == nil {
					break
				}
			}
			if grown := heapBytes() - before; grown > limit*5/4 || grown < limit/4 {
				t.Errorf("the heap grew by %d bytes, the limit is %d", grown, limit)
			}
			runtime.KeepAlive(c)
		})
	}
}

// A mask that is stored again is counted once, and masks that are stored after it are still found.
func TestMasksAreStoredOnce(t *testing.T) {
	mask := func() *leafMask { return &leafMask{whole: &tokenSet{ids: make([]int32, 4)}} }
	c := newMaskCache(8 * mask().bytes())
	kept := mask()
	c.put(maskKey{class: 1}, kept)
	for range 8 {
		c.put(maskKey{class: 1}, mask())
	}
	if c.bytes() != kept.bytes() || c.get(maskKey{class: 1}) != kept {
		t.Errorf("%d bytes of one mask of %d", c.bytes(), kept.bytes())
	}
	for class := range 7 {
		c.put(maskKey{class: uint64(2 + class)}, mask())
	}
	for class := range 8 {
		if c.get(maskKey{class: uint64(1 + class)}) == nil {
			t.Errorf("mask %d was dropped below the limit", 1+class)
		}
	}
	c.put(maskKey{class: 9}, mask())
	if c.get(maskKey{class: 1}) != nil || c.get(maskKey{class: 2}) == nil || c.bytes() != 8*kept.bytes() {
		t.Errorf("beyond the limit the oldest mask must be dropped; %d bytes of masks of %d", c.bytes(), kept.bytes())
	}
}

// For a grammar in which a text has many readings at once, the states that are stored also stay within their limit in
// bytes.
func TestArenasAreBoundedInBytes(t *testing.T) {
	var parts []string
	for i := range maxWideLeaves {
		parts = append(parts, fmt.Sprintf(`{"type":"string","maxLength":%d}`, 6000+i))
	}
	tokens := tokensOf(t, pieces...)
	before := heapBytes()
	g := compile(t, tokens, `{"type":"array","items":{"anyOf":[`+strings.Join(parts, ",")+`]}}`)
	most, arena, arenas := int64(0), g.arena, 1
	s := g.Start()
	accept(t, s, `[`)
	for range 3 {
		accept(t, s, `"`)
		for range 5000 {
			accept(t, s, "a")
			if g.arena != arena {
				arena, arenas = g.arena, arenas+1
				most = max(most, heapBytes()-before)
			}
		}
		accept(t, s, `",`)
	}
	if arenas < 2 {
		t.Fatal("documents explore too little: no arena was full")
	}
	if most > 2*maxArenaBytes {
		t.Errorf("the heap grew by %d bytes, an arena may take %d", most, maxArenaBytes)
	}
	runtime.KeepAlive(g)
}

// fatSchemas returns schemas that compile to large grammars, by name.
func fatSchemas() map[string]string {
	var patterns, alternatives, names, values strings.Builder
	for i := range 900 {
		fmt.Fprintf(&patterns, `,"k%07x":{"type":"string","pattern":"^k%07x[a-z]{1,20}$"}`, i*7919, i*104729)
		fmt.Fprintf(&names, `,"name %d of a property that is not short":{"type":["string","null"]}`, i)
	}
	for i := range 200 {
		fmt.Fprintf(&alternatives, `,{"type":"object","properties":{"k%07x":{"const":"k%07x"}}}`, i*7919, i*104729)
	}
	for i := range 20_000 {
		fmt.Fprintf(&values, `,"value number %d"`, i)
	}
	return map[string]string{
		"patterns":     `{"type":"object","properties":{"a":{}` + patterns.String() + `}}`,
		"alternatives": `{"oneOf":[{}` + alternatives.String() + `]}`,
		"properties":   `{"type":"object","additionalProperties":false,"properties":{"a":{}` + names.String() + `}}`,
		"values":       `{"enum":["x"` + values.String() + `]}`,
	}
}

// The reported size of a grammar is at least three quarters and at most twice the number of bytes by which the heap
// grows.
func TestBytesOfGrammars(t *testing.T) {
	tokens := tokensOf(t, pieces...)
	for name, text := range fatSchemas() {
		var g *Grammar
		grown := heap.Kept(func() any {
			g = compile(t, tokens, text)
			return g
		})
		if n := g.Bytes(); n < grown*3/4 || n > 2*grown {
			t.Errorf("%s: %d bytes of the heap count as %d", name, grown, n)
		}
	}
}

// The stored states of all grammars together have a limit in bytes. The limit does not change which documents are
// accepted, and released grammars no longer count towards it.
func TestGrammarsTogetherAreBounded(t *testing.T) {
	tokens := tokensOf(t, pieces...)
	tokens.explored.most = 6 << 20
	const grammars = 12
	var list []*Grammar
	var states []*State
	for i := range grammars {
		g := compile(t, tokens, fmt.Sprintf(`{"anyOf":[{"type":"string","maxLength":%d},{"type":"string","minLength":%d}]}`,
			6000+i, 5000+i))
		list, states = append(list, g), append(states, g.Start())
		accept(t, states[i], `"`)
	}
	most := int64(0)
	for range 5000 {
		for _, s := range states {
			accept(t, s, "a")
			most = max(most, tokens.explored.bytes.Load())
		}
	}
	if bound := tokens.explored.most + 2*grammars*minExplored; most > bound || most < tokens.explored.most {
		t.Errorf("%d bytes count as explored, about %d are meant", most, tokens.explored.most)
	}
	for i, s := range states {
		if accept(t, s, `"`); !s.Done() {
			t.Errorf("document %d is not complete", i)
		}
		list[i].Release()
		list[i].Release()
	}
	if left := tokens.explored.bytes.Load(); left != 0 {
		t.Errorf("%d bytes are left of grammars that were released", left)
	}
}

// The cache of compiled patterns is also limited in bytes.
func TestPatternsAreBoundedInBytes(t *testing.T) {
	tokens := tokensOf(t, pieces...)
	grown := heap.Kept(func() any {
		for i := range 3000 {
			tokens.family(fmt.Sprintf("%0*d", MaxPatternBytes, i))
		}
		return tokens.families
	})
	if grown > maxFamilyBytes*5/4 {
		t.Errorf("%d bytes of the heap, at most %d are meant", grown, maxFamilyBytes)
	}
}
