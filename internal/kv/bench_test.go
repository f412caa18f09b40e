package kv

import (
	"encoding/binary"
	"testing"
)

// decode opens a prompt, decodes the given number of tokens with drafts that are rejected, and closes the sequence.
func decode(tb testing.TB, p *Pool, prompt []int32, steps int, token []int32) {
	s, _, err := p.Open(prompt, OpenOptions{Salt: []byte("tenant")})
	ok(tb, err)
	ok(tb, s.Reserve(len(prompt)-s.Len()))
	ok(tb, s.Commit(prompt[s.Len():]))
	for i := range steps {
		token[0] = int32(i)
		ok(tb, s.Reserve(4))
		ok(tb, s.Commit(token))
		ok(tb, s.Truncate(s.Len()))
	}
	ok(tb, s.Close())
}

func TestDecodingAllocatesNothingAfterWarmUp(t *testing.T) {
	token := make([]int32, 1)
	for _, c := range []struct {
		name  string
		pages int
	}{{"with room", 64}, {"evicting all the time", 11}} {
		t.Run(c.name, func(t *testing.T) {
			p := newPool(t, Config{Pages: c.pages, FirstPage: 1, PageTokens: 4, Reuse: true})
			prompts := [][]int32{tokens(0, 10), tokens(100, 11), tokens(200, 12), tokens(300, 13), tokens(400, 14),
				tokens(500, 8)}
			round := func() {
				for _, prompt := range prompts {
					decode(t, p, prompt, 16, token)
				}
			}
			round()
			if n := testing.AllocsPerRun(50, round); n != 0 {
				t.Errorf("%v allocations per round, want 0", n)
			}
			if st := p.Stats(); (st.Evictions > 0) != (c.pages == 11) || st.ReusedTokens == 0 && c.pages > 11 {
				t.Errorf("statistics %+v: evictions do not match the case under test", st)
			}
		})
	}
}

func TestPeekAllocatesNothingAfterWarmUp(t *testing.T) {
	p := newPool(t, Config{Pages: 64, PageTokens: 4, Reuse: true})
	prompt := tokens(0, 50)
	fill(t, p, prompt, OpenOptions{})
	round := func() {
		if _, err := p.Peek(prompt, OpenOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	round()
	if n := testing.AllocsPerRun(50, round); n != 0 {
		t.Errorf("%v allocations per round, want 0", n)
	}
}

const long = 100_000

func longPool(b *testing.B) (*Pool, []int32) {
	return newPool(b, Config{Pages: 2048, FirstPage: 1, PageTokens: 64, Reuse: true}), tokens(0, long)
}

// BenchmarkOpenHit opens and closes a prompt of 100k tokens whose full pages are all stored.
func BenchmarkOpenHit(b *testing.B) {
	p, prompt := longPool(b)
	s, _ := fill(b, p, prompt, OpenOptions{})
	ok(b, s.Close())
	b.ReportAllocs()
	for b.Loop() {
		s, m, err := p.Open(prompt, OpenOptions{})
		if err != nil || m.Pages != (long-1)/64 {
			b.Fatal(m, err)
		}
		ok(b, s.Close())
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(long/64), "ns/page")
}

// BenchmarkPrefillCommit commits a prompt of 100k tokens that is stored under another salt each time: every page is
// hashed and stored, and from the second prompt on it evicts another page.
func BenchmarkPrefillCommit(b *testing.B) {
	p, prompt := longPool(b)
	salt := make([]byte, 8)
	b.ReportAllocs()
	for b.Loop() {
		binary.LittleEndian.PutUint64(salt, binary.LittleEndian.Uint64(salt)+1)
		s, _, err := p.Open(prompt, OpenOptions{Salt: salt})
		ok(b, err)
		ok(b, s.Reserve(long))
		ok(b, s.Commit(prompt))
		ok(b, s.Close())
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(long/64), "ns/page")
}

// BenchmarkDecode reserves and commits one token with pages of 64: every 64th token hashes and stores a page.
func BenchmarkDecode(b *testing.B) {
	p, _ := longPool(b)
	token := []int32{0}
	s, _, err := p.Open(nil, OpenOptions{})
	ok(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if s.Len() == long {
			ok(b, s.Close())
			s, _, err = p.Open(nil, OpenOptions{})
			ok(b, err)
		}
		token[0]++
		// The helper ok is not used here, because testing.B.Helper costs more time than both calls.
		if s.Reserve(1) != nil || s.Commit(token) != nil {
			b.Fatal("out of pages")
		}
	}
}
