package grammar

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const benchTokens = 129280

const benchSchema = `{"type":"object","properties":{
	"name":{"type":"string","maxLength":200},
	"age":{"type":"integer","minimum":0,"maximum":150},
	"email":{"type":"string","format":"email"},
	"tags":{"type":"array","items":{"type":"string"},"maxItems":20},
	"kind":{"enum":["person","robot","other"]},
	"address":{"type":"object","properties":{"street":{"type":"string"},"zip":{"type":"string","pattern":"^[0-9]{5}$"}},"required":["street"],"additionalProperties":false},
	"notes":{"type":"string"}},
	"required":["name","age","tags","notes"],"additionalProperties":false}`

// benchDocument returns a document of about 400 tokens.
func benchDocument() string {
	words := strings.Repeat("the station wants another verdict before generation ends, ", 12)
	return fmt.Sprintf(
		`{"name": "prestation unending", "age": 42, "email": "an.ber@station.org", "tags": ["one", "two", "for"], "kind": "robot", `+
			`"address": {"street": "lo ment 5", "zip": "12345"}, "notes": "%s%s"}`, words, words)
}

// split returns the ids of the longest tokens, from left to right, that a text consists of.
func split(b *testing.B, t *Tokens, text string) (ids []int32) {
	b.Helper()
	byText := map[string]int32{}
	for id := range int32(t.size) {
		byText[string(t.bytes(id))] = id
	}
	for text != "" {
		n := min(len(text), t.trie.deep)
		for ; n > 0; n-- {
			if id, ok := byText[text[:n]]; ok {
				ids = append(ids, id)
				text = text[n:]
				break
			}
		}
		if n == 0 {
			b.Fatalf("no token for %q", text)
		}
	}
	return ids
}

func benchVocabulary(b *testing.B) *Tokens {
	b.Helper()
	t, err := NewTokens(largeVocabulary(benchTokens))
	if err != nil {
		b.Fatal(err)
	}
	return t
}

func BenchmarkNewTokens(b *testing.B) {
	v := largeVocabulary(benchTokens)
	for b.Loop() {
		if _, err := NewTokens(v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	t := benchVocabulary(b)
	for b.Loop() {
		if _, err := Compile([]byte(benchSchema), t); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDocument masks and accepts every token of a document. The case "cold" compiles the schema each time, so that
// only the caches of the vocabulary are warm. The case "first" also builds a new vocabulary.
func BenchmarkDocument(b *testing.B) {
	t := benchVocabulary(b)
	ids := split(b, t, benchDocument())
	mask := make([]uint64, t.MaskWords())
	compile := func(t *Tokens) *Grammar {
		g, err := Compile([]byte(benchSchema), t)
		if err != nil {
			b.Fatal(err)
		}
		return g
	}
	worst := time.Duration(0)
	run := func(g *Grammar) {
		s := g.Start()
		for _, id := range ids {
			started := time.Now()
			if err := s.Mask(mask); err != nil {
				b.Fatal(err)
			}
			worst = max(worst, time.Since(started))
			if err := s.Accept(id); err != nil {
				b.Fatal(err)
			}
		}
	}
	perToken := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(ids)), "ns/token")
		b.ReportMetric(float64(worst.Nanoseconds()), "ns/worst-mask")
		worst = 0
	}
	b.Run("warm", func(b *testing.B) {
		g := compile(t)
		run(g)
		b.ReportAllocs()
		for b.Loop() {
			run(g)
		}
		perToken(b)
	})
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			run(compile(t))
		}
		perToken(b)
	})
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			t := benchVocabulary(b)
			b.StartTimer()
			run(compile(t))
		}
		perToken(b)
	})
	b.Run("JSONObject", func(b *testing.B) {
		for b.Loop() {
			g, err := JSONObject(t)
			if err != nil {
				b.Fatal(err)
			}
			run(g)
		}
		perToken(b)
	})
}
