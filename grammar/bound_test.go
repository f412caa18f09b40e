package grammar

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// A cache of masks holds no more than its limit, whatever its masks are: full bitmaps, many places to end, or none.
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

// What documents have explored of a grammar with many readings at once is bounded in bytes, too.
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
