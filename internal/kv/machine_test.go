package kv

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sparrow/internal/kv/prefix"
)

// The test makes random calls of a pool and compares the results with a naive model. It checks:
//
//   - Contents: for every committed position of every sequence, its page holds the row that was computed for exactly
//     this salt and the tokens up to this position, whatever was shared, rejected, evicted, preempted or reset
//     before.
//   - Lookups: how far they match and why they stop follows from the pages that are stored according to the events.
//   - Windows: the rows that the next token attends to are in the sequence's window pages, whichever sequences used
//     these pages before; a lookup is shortened only if such rows are missing.
//   - Memory: a reservation fails only if too few pages are free or cached; the error has the right numbers, and the
//     pool does not change.
//   - Check holds after every call.
func TestPoolAgainstANaiveModel(t *testing.T) { rapid.Check(t, drive) }

// FuzzPool lets the fuzzer choose the calls. The seeds are long enough for a run of many calls.
func FuzzPool(f *testing.F) {
	for seed := range byte(4) {
		var choices [4 << 10]byte
		rand.NewChaCha8([32]byte{seed}).Read(choices[:])
		f.Add(choices[:])
	}
	f.Fuzz(rapid.MakeFuzz(drive))
}

func drive(t *rapid.T) {
	w := &world{memory: map[Page][]uint64{}, window: map[int32][]uint64{}}
	w.cfg = Config{
		Pages:      rapid.IntRange(2, 14).Draw(t, "pages"),
		FirstPage:  rapid.IntRange(0, 1).Draw(t, "first"),
		PageTokens: rapid.IntRange(1, 4).Draw(t, "tokens"),
		Reuse:      rapid.IntRange(0, 9).Draw(t, "reuse") > 0,
	}
	if rapid.Bool().Draw(t, "windows") {
		w.cfg.Window = Window{Pages: 1, Tokens: rapid.IntRange(1, 7).Draw(t, "window tokens")}
		least := w.cfg.Window.PerSequence(w.cfg.PageTokens)
		w.cfg.Window.Pages = least + rapid.IntRange(0, 8).Draw(t, "window pages")
	}
	w.mirror = newMirror(w.cfg.Pages)
	w.cfg.Listener = w.mirror
	var err error
	if w.pool, err = New(w.cfg); err != nil {
		t.Fatal(err)
	}
	for _, salt := range salts {
		w.mirror.content[w.pool.index.Root([]byte(salt))] = salt + "|"
	}
	t.Repeat(map[string]func(*rapid.T){
		"":         w.check,
		"open":     w.open,
		"write":    w.write,
		"truncate": w.truncate,
		"close":    w.close,
		"reset":    w.reset,
	})
}

var salts = []string{"", "acme"}

// world is the pool under test, the cache memory that it manages, and the expected contents of every sequence.
type world struct {
	cfg    Config
	pool   *Pool
	memory map[Page][]uint64  // rows of each page, [PageTokens]
	window map[int32][]uint64 // rows of each window page, [PageTokens]
	users  []*user
	mirror *mirror
}

// user is an open sequence with its expected tokens.
type user struct {
	Sequence
	salt   string
	tokens []int32 // committed tokens
}

// row returns the row that the model would compute for the last token. The row depends on all tokens.
func row(salt string, tokens []int32) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, salt, tokens)
	return h.Sum64()
}

func (w *world) slot(u *user, pos int) *uint64 {
	page := Page(u.Pages()[pos/w.cfg.PageTokens])
	if w.memory[page] == nil {
		w.memory[page] = make([]uint64, w.cfg.PageTokens)
	}
	return &w.memory[page][pos%w.cfg.PageTokens]
}

// windowSlot returns the slot of a position in the sequence's window pages.
func (w *world) windowSlot(u *user, pos int) *uint64 {
	page := u.Windows()[pos/w.cfg.PageTokens]
	if w.window[page] == nil {
		w.window[page] = make([]uint64, w.cfg.PageTokens)
	}
	return &w.window[page][pos%w.cfg.PageTokens]
}

// put writes the row of a position to the cache and to the expected contents.
func (w *world) put(u *user, pos int, row uint64) {
	*w.slot(u, pos) = row
	if w.cfg.Window.Pages > 0 {
		*w.windowSlot(u, pos) = row
	}
}

// Prompts have only two different tokens, so that they often share prefixes.
var someTokens = rapid.SliceOfN(rapid.Int32Range(0, 1), 0, 20)

func (w *world) open(t *rapid.T) {
	salt := rapid.SampledFrom(salts).Draw(t, "salt")
	prompt := someTokens.Draw(t, "prompt")
	if len(w.users) > 0 && rapid.Bool().Draw(t, "follow up") {
		u := rapid.SampledFrom(w.users).Draw(t, "user")
		salt, prompt = u.salt, append(slices.Clone(u.tokens), prompt...)
	}
	o := OpenOptions{Salt: []byte(salt), Compute: rapid.IntRange(0, 6).Draw(t, "compute")}
	want := w.shortened(t, w.mirror.match(w.cfg, salt, prompt, max(o.Compute, 1)), salt, prompt)
	if m, err := w.pool.Peek(prompt, o); err != nil || m != want {
		t.Fatalf("Peek returned %v, error %v; want %v", m, err, want)
	}
	s, m, err := w.pool.Open(prompt, o)
	if err != nil || m != want {
		t.Fatalf("Open returned %v, error %v; want %v", m, err, want)
	}
	if s.Len() != m.Tokens || s.Reused() != m.Tokens || len(s.Pages()) != m.Pages {
		t.Fatalf("length %d, reused %d, %d pages after %v", s.Len(), s.Reused(), len(s.Pages()), m)
	}
	w.users = append(w.users, &user{Sequence: s, salt: salt, tokens: slices.Clone(prompt[:m.Tokens])})
}

// shortened predicts the match if window rows are required. It ends after the largest number of pages at which all
// window rows are stored.
func (w *world) shortened(t *rapid.T, m Match, salt string, prompt []int32) Match {
	if w.cfg.Window.Pages == 0 {
		return m
	}
	table, _ := w.pool.index.Lookup(w.pool.index.Root([]byte(salt)), prompt[:m.Tokens], 0, nil)
	if len(table) != m.Pages {
		t.Fatalf("%d pages are stored, want %d", len(table), m.Pages)
	}
	whole := func(n int) bool {
		for pos := max(n-w.cfg.Window.Tokens+1, 0); pos < n; pos++ {
			if w.pool.win.of[table[pos/w.cfg.PageTokens]] == none {
				return false
			}
		}
		return true
	}
	for !whole(m.Tokens) {
		m.Pages, m.Tokens = m.Pages-1, m.Tokens-w.cfg.PageTokens
		m.Stop, m.At = prefix.StopWindow, m.Tokens
	}
	return m
}

// write runs one step of a sequence: new tokens and drafts are computed, the tokens and some drafts accepted.
func (w *world) write(t *rapid.T) {
	u := w.pick(t)
	accepted, rejected := someTokens.Draw(t, "accepted"), rapid.IntRange(0, 5).Draw(t, "rejected")
	if !w.reserve(t, u, len(accepted)+rejected) {
		return
	}
	next := append(slices.Clone(u.tokens), accepted...)
	for pos := len(u.tokens); pos < len(next); pos++ {
		w.put(u, pos, row(u.salt, next[:pos+1]))
	}
	for pos := range rejected {
		w.put(u, len(next)+pos, 0xbad)
	}
	if err := u.Commit(accepted); err != nil {
		t.Fatal(err)
	}
	u.tokens = next
	if rapid.Bool().Draw(t, "give back") {
		if err := u.Truncate(u.Len()); err != nil {
			t.Fatal(err)
		}
	}
}

// reserve reserves space, and preempts other sequences, the youngest first, if pages are missing.
func (w *world) reserve(t *rapid.T, u *user, n int) bool {
	for {
		before, table, need := w.pool.Stats(), slices.Clone(u.Pages()), u.Needs(n)
		err := u.Reserve(n)
		if want := max((len(u.tokens)+n+w.cfg.PageTokens-1)/w.cfg.PageTokens-len(table), 0); need != want {
			t.Fatalf("%d tokens after %d tokens in %d pages need %d pages, want %d", n, len(u.tokens), len(table), need,
				want)
		}
		var full *FullError
		lack := FullError{Needed: need, Free: before.Free, Evictable: before.Cached}
		fits := need <= before.Free+before.Cached
		if w.cfg.Window.Pages > 0 && fits && need > before.WindowsFree+before.WindowsIdle {
			fits, lack = false, FullError{Needed: need, Free: before.WindowsFree, Evictable: before.WindowsIdle,
				Window: true}
		}
		switch {
		case err == nil && fits:
			if len(u.Pages()) != len(table)+need || !slices.Equal(u.Pages()[:len(table)], table) {
				t.Fatalf("table %v became %v for %d pages", table, u.Pages(), need)
			}
			return true
		case fits || !errors.As(err, &full) || *full != lack:
			t.Fatalf("error %v for %d pages with statistics %+v", err, need, before)
		case w.pool.Stats() != before || !slices.Equal(u.Pages(), table):
			t.Fatalf("a failed reservation changed %+v to %+v", before, w.pool.Stats())
		}
		w.check(t)
		youngest := len(w.users) - 1
		if w.users[youngest] == u {
			youngest--
		}
		if youngest < 0 {
			return false
		}
		w.end(t, youngest)
	}
}

func (w *world) truncate(t *rapid.T) {
	u := w.pick(t)
	n := rapid.IntRange(0, len(u.Pages())*w.cfg.PageTokens+1).Draw(t, "to")
	full := len(u.tokens) / w.cfg.PageTokens * w.cfg.PageTokens
	gone := n < full
	if w.cfg.Window.Pages > 0 && n < len(u.tokens) {
		for i := w.cfg.Window.first(n, w.cfg.PageTokens); i*w.cfg.PageTokens < n; i++ {
			gone = gone || w.pool.win.of[u.Pages()[i]] == none
		}
	}
	if err := u.Truncate(n); (err != nil) != gone {
		t.Fatalf("truncating to %d of %d tokens: error %v", n, len(u.tokens), err)
	}
	if !gone {
		u.tokens = u.tokens[:min(n, len(u.tokens))]
	}
}

func (w *world) close(t *rapid.T) {
	w.pick(t)
	w.end(t, rapid.IntRange(0, len(w.users)-1).Draw(t, "which"))
}

func (w *world) end(t *rapid.T, i int) {
	if err := w.users[i].Close(); err != nil {
		t.Fatal(err)
	}
	w.users = slices.Delete(w.users, i, i+1)
}

func (w *world) reset(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
		w.pool.Reset()
	}
}

// pick returns a random open sequence. If none is open, it opens one.
func (w *world) pick(t *rapid.T) *user {
	if len(w.users) == 0 {
		w.open(t)
	}
	return rapid.SampledFrom(w.users).Draw(t, "user")
}

func (w *world) check(t *rapid.T) {
	if err := w.pool.Check(); err != nil {
		t.Fatal(err)
	}
	if w.mirror.broken != "" {
		t.Fatal(w.mirror.broken)
	}
	held := map[int32]bool{}
	for i, u := range w.users {
		if u.Len() != len(u.tokens) {
			t.Fatalf("sequence %d has %d tokens, want %d", i, u.Len(), len(u.tokens))
		}
		for _, page := range u.Pages() {
			held[page] = true
		}
		for pos := range u.tokens {
			if got, want := *w.slot(u, pos), row(u.salt, u.tokens[:pos+1]); got != want {
				t.Fatalf("sequence %d, token %d, page %d: row %x, want %x", i, pos, u.Pages()[pos/w.cfg.PageTokens],
					got, want)
			}
			if w.cfg.Window.Pages == 0 || pos < len(u.tokens)-w.cfg.Window.Tokens+1 {
				continue
			}
			if got, want := *w.windowSlot(u, pos), row(u.salt, u.tokens[:pos+1]); got != want {
				t.Fatalf("sequence %d, token %d, window page %d: row %x, want %x", i, pos,
					u.Windows()[pos/w.cfg.PageTokens], got, want)
			}
		}
	}
	s := w.pool.Stats()
	if s.Used != len(held) || s.Free+s.Cached+s.Used != s.Pages || s.Pages != w.cfg.Pages-w.cfg.FirstPage ||
		s.Sequences != len(w.users) {
		t.Fatalf("statistics %+v, but %d pages are held by %d sequences", s, len(held), len(w.users))
	}
}

// mirror derives which contents are stored, and which were evicted recently, from events alone.
type mirror struct {
	content map[prefix.Hash]string // salt and all tokens up to the end of the page, by hash
	stored  map[string]bool
	evicted []string
	size    int
	broken  string
}

func newMirror(size int) *mirror {
	return &mirror{content: map[prefix.Hash]string{}, stored: map[string]bool{}, size: size}
}

func letters(tokens []int32) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteByte(byte('0' + t))
	}
	return b.String()
}

func (m *mirror) Stored(s prefix.Stored) {
	before := m.content[s.Parent]
	key := before + letters(s.Tokens)
	if before == "" || m.stored[key] || s.Parent != s.Root && !m.stored[before] {
		m.broken = fmt.Sprintf("page %q was stored twice or without its parent", key)
	}
	m.content[s.Hash], m.stored[key] = key, true
}

func (m *mirror) Removed(h prefix.Hash) {
	key := m.content[h]
	if !m.stored[key] {
		m.broken = fmt.Sprintf("page %q was removed, but was not stored", key)
	}
	delete(m.stored, key)
	for other := range m.stored {
		if strings.HasPrefix(other, key) {
			m.broken = fmt.Sprintf("page %q was removed before its child %q", key, other)
		}
	}
	if !slices.Contains(m.evicted, key) {
		m.evicted = append(m.evicted, key)
	}
	m.evicted = m.evicted[max(len(m.evicted)-m.size, 0):]
}

func (m *mirror) Cleared() { m.stored, m.evicted = map[string]bool{}, nil }

// match predicts the result of a lookup.
func (m *mirror) match(c Config, salt string, prompt []int32, compute int) Match {
	want := Match{Prompt: len(prompt), Stop: prefix.StopOff}
	if !c.Reuse {
		return want
	}
	text, size := letters(prompt), c.PageTokens
	for {
		end := want.Tokens + size
		switch key := salt + "|" + text[:min(end, len(text))]; {
		case end > len(prompt):
			want.Stop, want.At = prefix.StopWhole, want.Tokens
			return want
		case end > len(prompt)-compute:
			want.Stop, want.At = prefix.StopCompute, want.Tokens
			return want
		case !m.stored[key]:
			want.Stop, want.At = m.why(key, size)
			want.At += want.Tokens
			return want
		}
		want.Tokens, want.Pages = end, want.Pages+1
	}
}

func (m *mirror) why(key string, size int) (stop prefix.Stop, at int) {
	if slices.Contains(m.evicted, key) {
		return prefix.StopEvicted, 0
	}
	stop = prefix.StopUnknown
	before := len(key) - size
	for other := range m.stored {
		if len(other) != len(key) || other[:before] != key[:before] {
			continue
		}
		stop = prefix.StopDifferent
		n := before
		for other[n] == key[n] {
			n++
		}
		at = max(at, n-before)
	}
	return stop, at
}
